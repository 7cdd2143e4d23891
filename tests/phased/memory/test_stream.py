"""Tests of the weight stream: phases arrive in order, phases in use are not overwritten, `acquire` raises errors."""

from __future__ import annotations

import os
import threading

import pytest
import torch

from tessera.errors import TesseraError
from tessera.phased.events import EventTimeline
from tessera.phased.memory.arena import WorkingArena
from tessera.phased.memory.stream import StreamClosed, WeightStream
from tessera.phased.store.layout import lay_out_phase
from tessera.phased.store.reader import PhaseReader, ReadConfig
from tessera.phased.store.weights_file import WeightsFile
from tessera.phased.store.weights_writer import WeightEntry, write_weights_file

PHASES, COUNT = 7, 5000


@pytest.fixture
def parts(tmp_path):
    entries = [[WeightEntry(name=f"{n}", dtype=torch.float32, shape=(COUNT,))] for n in range(PHASES)]
    write_weights_file(tmp_path / "w", entries, lambda name: torch.full((COUNT,), float(name)), checksums=False)
    file = WeightsFile(tmp_path / "w")
    reader = PhaseReader(ReadConfig(file=file))
    layouts = {n: lay_out_phase([file.tensors[f"{n}"]]) for n in range(PHASES)}
    yield reader, layouts, tmp_path / "w"
    reader.close()
    file.close()


def open_stream(parts, buffers, users=1, timeline=None):
    reader, layouts, _ = parts
    arena = WorkingArena([layouts[0].nbytes] * buffers)
    stream = WeightStream(reader, range(PHASES), layouts, arena.regions, timeline or EventTimeline(), users=users)
    return stream, arena


def get_value(parts, arena, phase, buffer):
    ((tensor, at),) = parts[1][phase].places
    return arena.regions[buffer].view(at, tensor.dtype, tensor.shape)


@pytest.mark.parametrize("buffers", [1, 2, 3, PHASES])
@pytest.mark.parametrize("users", [1, 3])
@pytest.mark.timeout(60)
def test_phases_arrive_in_order_over_several_passes(parts, buffers, users):
    stream, arena = open_stream(parts, buffers, users)
    wrong = []

    def use() -> None:
        for _ in range(3):
            for phase in range(PHASES):
                buffer = stream.acquire(phase)
                if not torch.equal(get_value(parts, arena, phase, buffer), torch.full((COUNT,), float(phase))):
                    wrong.append(phase)
                stream.release(phase)
            together.wait()  # all users finish a pass before the next pass begins

    together = threading.Barrier(users)
    threads = [threading.Thread(target=use) for _ in range(users)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    stream.close()


def test_the_next_pass_after_a_failed_pass_starts_over(parts):
    stream, arena = open_stream(parts, 2)
    for phase in (0, 1):
        stream.acquire(phase)
    stream.release(0)
    stream.rewind()
    for phase in range(PHASES):
        assert get_value(parts, arena, phase, stream.acquire(phase))[0] == phase
        stream.release(phase)
    stream.close()


def test_every_load_is_logged_once(parts):
    timeline = EventTimeline()
    stream, _ = open_stream(parts, 3, timeline=timeline)
    for phase in range(PHASES):
        stream.acquire(phase)
        stream.release(phase)
    loads = [event for event in timeline.drain() if event.kind == "load"]
    assert [event.phase for event in loads] == list(range(PHASES))
    assert all(event.bytes == 4 * COUNT and event.stop > event.start for event in loads)
    stream.close()


def test_errors_are_raised_in_the_waiting_thread(parts):
    stream, _ = open_stream(parts, 1)
    stream.acquire(0)
    os.truncate(parts[2], 100)
    stream.release(0)
    with pytest.raises(TesseraError, match="changed while it was in use"):
        stream.acquire(1)
    stream.close()
    with pytest.raises(StreamClosed):
        stream.acquire(1)


@pytest.mark.timeout(30)
def test_aborting_wakes_the_waiting_thread(parts):
    stream, _ = open_stream(parts, 1)
    stream.acquire(0)
    woken = []

    def wait() -> None:
        with pytest.raises(StreamClosed):
            stream.acquire(3)
        woken.append(True)

    thread = threading.Thread(target=wait)
    thread.start()
    stream.abort()
    thread.join()
    assert woken
    stream.close()
