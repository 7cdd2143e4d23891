"""A stream gives every phase in turn, never overwrites one that is in use, and tells errors to who waits."""

from __future__ import annotations

import os
import threading

import pytest
import torch

from tessera.errors import TesseraError
from tessera.phased.events import Timeline
from tessera.phased.memory.arena import Arena
from tessera.phased.memory.stream import StreamOver, WeightStream
from tessera.phased.store.layout import layout_of
from tessera.phased.store.reader import Reader, Reading
from tessera.phased.store.weights_file import WeightsFile
from tessera.phased.store.weights_writer import Entry, write_file

PHASES, COUNT = 7, 5000


@pytest.fixture
def parts(tmp_path):
    entries = [[Entry(name=f"{n}", dtype=torch.float32, shape=(COUNT,))] for n in range(PHASES)]
    write_file(tmp_path / "w", entries, lambda name: torch.full((COUNT,), float(name)), checksums=False)
    file = WeightsFile(tmp_path / "w")
    reader = Reader(Reading(file=file))
    layouts = {n: layout_of([file.tensors[f"{n}"]]) for n in range(PHASES)}
    yield reader, layouts, tmp_path / "w"
    reader.close()
    file.close()


def stream_of(parts, buffers, users=1, timeline=None):
    reader, layouts, _ = parts
    arena = Arena([layouts[0].nbytes] * buffers)
    stream = WeightStream(reader, range(PHASES), layouts, arena.regions, timeline or Timeline(), users=users)
    return stream, arena


def value(parts, arena, phase, buffer):
    ((tensor, at),) = parts[1][phase].places
    return arena.regions[buffer].view(at, tensor.dtype, tensor.shape)


@pytest.mark.parametrize("buffers", [1, 2, 3, PHASES])
@pytest.mark.parametrize("users", [1, 3])
@pytest.mark.timeout(60)
def test_phases_come_in_turn_over_several_passes(parts, buffers, users):
    stream, arena = stream_of(parts, buffers, users)
    wrong = []

    def use() -> None:
        for _ in range(3):
            for phase in range(PHASES):
                buffer = stream.acquire(phase)
                if not torch.equal(value(parts, arena, phase, buffer), torch.full((COUNT,), float(phase))):
                    wrong.append(phase)
                stream.release(phase)
            together.wait()  # a pass ends for all before the next begins

    together = threading.Barrier(users)
    threads = [threading.Thread(target=use) for _ in range(users)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    stream.close()


def test_a_broken_pass_begins_anew(parts):
    stream, arena = stream_of(parts, 2)
    for phase in (0, 1):
        stream.acquire(phase)
    stream.release(0)
    stream.rewind()
    for phase in range(PHASES):
        assert value(parts, arena, phase, stream.acquire(phase))[0] == phase
        stream.release(phase)
    stream.close()


def test_every_load_is_noted_once(parts):
    timeline = Timeline()
    stream, _ = stream_of(parts, 3, timeline=timeline)
    for phase in range(PHASES):
        stream.acquire(phase)
        stream.release(phase)
    loads = [event for event in timeline.take() if event.kind == "load"]
    assert [event.phase for event in loads] == list(range(PHASES))
    assert all(event.bytes == 4 * COUNT and event.stop > event.start for event in loads)
    stream.close()


def test_errors_come_to_who_waits(parts):
    stream, _ = stream_of(parts, 1)
    stream.acquire(0)
    os.truncate(parts[2], 100)
    stream.release(0)
    with pytest.raises(TesseraError, match="changed under the run"):
        stream.acquire(1)
    stream.close()
    with pytest.raises(StreamOver):
        stream.acquire(1)


@pytest.mark.timeout(30)
def test_giving_up_wakes_who_waits(parts):
    stream, _ = stream_of(parts, 1)
    stream.acquire(0)
    woken = []

    def wait() -> None:
        with pytest.raises(StreamOver):
            stream.acquire(3)
        woken.append(True)

    thread = threading.Thread(target=wait)
    thread.start()
    stream.give_up()
    thread.join()
    assert woken
    stream.close()
