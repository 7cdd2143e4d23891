"""Tests of writing weights: the result is a safetensors file in which every phase is contiguous and aligned."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from tessera.errors import TesseraError
from tessera.models.weights import PADDING_PREFIX
from tessera.phased import MatrixChain, write_weights
from tessera.phased.store.layout import lay_out_phase
from tessera.phased.store.weights_file import PAGE_BYTES, WeightsFile
from tessera.phased.store.weights_writer import (
    HUGE_PAGE_BYTES,
    LARGE_PHASE_BYTES,
    WeightEntry,
    plan_file,
    write_weights_file,
)

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.bool, torch.uint8]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_group_is_one_run_and_the_library_reads_the_same(tmp_path_factory, data):
    values: dict[str, torch.Tensor] = {}
    groups = []
    for number in range(data.draw(st.integers(1, 4))):
        group = []
        for index in range(data.draw(st.integers(1, 4))):
            shape = tuple(data.draw(st.lists(st.integers(0, 40), max_size=2)))
            value = (torch.randn(shape) * 100).to(data.draw(st.sampled_from(DTYPES)))
            values[f"{number}.{index}"] = value
            group.append(WeightEntry(name=f"{number}.{index}", dtype=value.dtype, shape=shape))
        groups.append(group)
    path = tmp_path_factory.mktemp("written") / "w"
    write_weights_file(path, groups, values.__getitem__, checksums=data.draw(st.booleans()))
    read = load_file(path)
    assert {name for name in read if not name.startswith(PADDING_PREFIX)} == values.keys()
    assert all(torch.equal(read[name], value) for name, value in values.items())
    file = WeightsFile(path)
    for group in groups:
        tensors = [file.tensors[entry.name] for entry in group]
        assert all(tensor.start % 64 == 0 for tensor in tensors)
        layout = lay_out_phase(tensors)
        assert len(layout.runs) == 1
        assert min(tensor.start for tensor in tensors) % PAGE_BYTES == 0
    file.close()


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(1, 3 * LARGE_PHASE_BYTES), min_size=1, max_size=40), names=st.integers(1, 300))
def test_large_groups_begin_at_huge_pages(sizes, names):
    entries = [WeightEntry(name=f"{i}" * names, dtype=torch.uint8, shape=(size,)) for i, size in enumerate(sizes)]
    tensors = plan_file([[entry] for entry in entries])
    end = tensors[entries[0].name].start
    for entry in entries:
        multiple = HUGE_PAGE_BYTES if entry.nbytes >= LARGE_PHASE_BYTES else PAGE_BYTES
        assert tensors[entry.name].start % multiple == 0
        assert 0 <= tensors[entry.name].start - end < multiple
        end = tensors[entry.name].stop


def test_a_file_with_a_large_group_is_read_by_the_library(tmp_path):
    small, large = torch.randn(5), torch.randn(LARGE_PHASE_BYTES // 4 + 3)
    entries = [
        [WeightEntry(name=name, dtype=torch.float32, shape=tuple(value.shape))]
        for name, value in (("a", small), ("b", large))
    ]
    write_weights_file(tmp_path / "w", entries, {"a": small, "b": large}.__getitem__, checksums=True)
    read = load_file(tmp_path / "w")
    assert torch.equal(read["a"], small)
    assert torch.equal(read["b"], large)
    assert (tmp_path / "w").stat().st_blocks * 512 < large.nbytes + 64 * PAGE_BYTES  # padding takes no disk space


def test_the_model_need_not_be_in_memory(tmp_path):
    with torch.device("meta"):
        model = MatrixChain(10, 3)
    requested = []

    def make_value(name: str) -> torch.Tensor:
        requested.append(name)
        return torch.full((10, 10), float(name.split(".")[1]))

    write_weights(tmp_path / "w", model, make_value, dtype="float16")
    assert requested == ["layers.0.weight", "layers.1.weight", "layers.2.weight"]
    read = load_file(tmp_path / "w")
    assert all(torch.equal(read[name], make_value(name).half()) for name in list(requested))


def test_errors_leave_no_file(tmp_path):
    with torch.device("meta"):
        model = MatrixChain(10, 3)
    with pytest.raises(TesseraError, match="has no values"):
        write_weights(tmp_path / "w", model)
    with pytest.raises(TesseraError, match="does not have the shape"):
        write_weights(tmp_path / "w", model, lambda name: torch.zeros(10, 9))
    with pytest.raises(TesseraError, match="cannot write"):
        write_weights(tmp_path / "none" / "w", model, lambda name: torch.zeros(10, 10))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "w").write_text("precious")
    with pytest.raises(TesseraError, match="already exists"):
        write_weights(tmp_path / "w", MatrixChain(10, 3))
    assert (tmp_path / "w").read_text() == "precious"
