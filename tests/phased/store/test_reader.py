"""Tests of the reader: reads of all sizes fill the right parts of the buffer, with and without direct I/O."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from tessera.phased.memory.arena import WorkingArena
from tessera.phased.store.layout import lay_out_phase
from tessera.phased.store.reader import PhaseReader, ReadConfig
from tessera.phased.store.weights_file import WeightsFile


@pytest.mark.parametrize("direct", [False, True])
@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(0, 9000), min_size=1, max_size=6), chosen=st.sets(st.integers(0, 5), min_size=1))
def test_any_tensors_of_a_file_of_another_program_can_be_read(tmp_path_factory, direct, sizes, chosen):
    values = {f"{n}": torch.randn(size) for n, size in enumerate(sizes)}
    path = tmp_path_factory.mktemp("read") / "w"
    save_file(values, path)
    file = WeightsFile(path)
    tensors = [file.tensors[name] for name in values if int(name) in chosen or name == "0"]
    layout = lay_out_phase(tensors)
    arena = WorkingArena([layout.nbytes])
    reader = PhaseReader(ReadConfig(file=file, direct=direct))
    loading = reader.read(layout, arena.regions[0].memory)
    assert loading.nbytes == sum(tensor.nbytes for tensor in tensors)
    for tensor, at in layout.places:
        assert torch.equal(arena.regions[0].view(at, tensor.dtype, tensor.shape), values[tensor.name])
    reader.close()
    file.close()


@pytest.mark.parametrize("direct", [False, True])
def test_phases_larger_than_a_block_are_read_in_several_blocks(tmp_path, direct, monkeypatch):
    monkeypatch.setattr(PhaseReader, "block", 8192)
    value = torch.randn(50_001)
    save_file({"a": value}, tmp_path / "w")
    file = WeightsFile(tmp_path / "w")
    layout = lay_out_phase([file.tensors["a"]])
    arena = WorkingArena([layout.nbytes])
    reader = PhaseReader(ReadConfig(file=file, direct=direct))
    loading = reader.read(layout, arena.regions[0].memory)
    assert len(loading.lanes) > 1
    assert torch.equal(arena.regions[0].view(layout.places[0][1], torch.float32, value.shape), value)
    reader.close()
    file.close()


def test_reading_threads_may_run_on_all_cores_of_the_process(tmp_path):
    """Reading threads must not inherit the pinning of the device thread that starts them."""
    save_file({"a": torch.randn(5000)}, tmp_path / "w")
    file = WeightsFile(tmp_path / "w")
    layout = lay_out_phase([file.tensors["a"]])
    arena = WorkingArena([layout.nbytes])
    reader = PhaseReader(ReadConfig(file=file))
    core = {min(os.sched_getaffinity(0))}
    with ThreadPoolExecutor(1, initializer=os.sched_setaffinity, initargs=(0, core)) as device:
        device.submit(reader.read, layout, arena.regions[0].memory).result()
    lanes = [thread for thread in threading.enumerate() if thread.name.startswith("tessera-reader")]
    assert lanes
    assert all(os.sched_getaffinity(lane.native_id or 0) == os.sched_getaffinity(0) for lane in lanes)
    reader.close()
    file.close()
