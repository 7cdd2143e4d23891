"""The cores' memories: bounded, in step, with real bytes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.coregrid.device.arena import Arena, Cores, OutOfMemory, progressions
from tessera.coregrid.device.freelist import FreeList
from tessera.geometry import Mesh

PAIR = Cores(0, (1, 2))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 40), st.booleans(), st.integers(0, 99)), max_size=40))
def test_what_is_taken_never_overlaps(steps: list[tuple[int, bool, int]]) -> None:
    memory, held = FreeList(200), []
    for size, from_bottom, which in steps:
        place = memory.take(size, from_bottom=from_bottom)
        if place is None:
            assert memory.largest_gap < size
            if held:
                memory.give(held.pop(which % len(held)))
            continue
        assert all(not len(place & other) for other in held)
        assert place.start >= 0
        assert place.stop <= 200
        held.append(place)
        assert memory.used == sum(map(len, held))
        assert memory.used + sum(map(len, memory.gaps())) == 200
    for place in held:
        memory.give(place)
    assert [len(gap) for gap in memory.gaps()] == [200]


def test_out_of_memory_says_core_need_and_have() -> None:
    arena = Arena(Mesh(2, 2), 1008)
    arena.allocate(600, "tensor")
    with pytest.raises(OutOfMemory, match=r"core \(0, 0\).*haloed input.*needs 500 bytes.*400 bytes.*use less"):
        arena.allocate(500, "haloed input", do="use less")
    assert arena.used == arena.peak == 608


def test_buffers_of_cores_are_apart() -> None:
    arena = Arena(Mesh(2, 3), 4096)
    first, second = arena.allocate(256, "a"), arena.allocate(256, "b", from_bottom=True)
    for core in range(6):
        arena.view(core, first, torch.float32, (8, 8)).fill_(core)
        arena.view(core, second, torch.float32, (8, 8)).fill_(-core)
    every = arena.across(Cores(0, (3, 1), (2, 1)), first, torch.float32, (8, 8))
    assert torch.equal(every[:, 0, 0, 0], torch.tensor([0.0, 2.0, 4.0]))
    assert torch.equal(arena.view(5, second, torch.float32, (8, 8)), torch.full((8, 8), -5.0))


def test_a_buffer_is_raised_with_its_bytes() -> None:
    arena = Arena(Mesh(1, 2), 1024)
    above, buffer = arena.allocate(128, "above"), arena.allocate(256, "moved")
    numbers = torch.randn(2, 8, 8)
    arena.across(PAIR, buffer, torch.float32, (8, 8))[0].copy_(numbers)
    arena.free(above)
    arena.raise_up(buffer)
    assert buffer.place.stop == 1024
    assert torch.equal(arena.across(PAIR, buffer, torch.float32, (8, 8))[0], numbers)


def test_room_is_made_if_there_is_any() -> None:
    arena, numbers = Arena(Mesh(1, 2), 1024), torch.randn(2, 4, 16)
    buffers = [arena.allocate(256, f"number {number}") for number in range(4)]
    for number in (1, 3):
        arena.across(PAIR, buffers[number], torch.float32, (4, 16))[0].copy_(numbers + number)
    arena.free(buffers[0])
    arena.free(buffers[2])
    arena.make_room(512)
    large = arena.allocate(512, "large")
    arena.across(PAIR, large, torch.float32, (8, 16))[0].zero_()
    for number in (1, 3):
        assert torch.equal(arena.across(PAIR, buffers[number], torch.float32, (4, 16))[0], numbers + number)
    arena.make_room(1)
    with pytest.raises(OutOfMemory):
        arena.allocate(16, "too much")


@given(st.lists(st.integers(0, 50), unique=True, max_size=20))
def test_progressions_keep_the_order(cores: list[int]) -> None:
    assert [core for run in progressions(cores) for core in run] == cores
