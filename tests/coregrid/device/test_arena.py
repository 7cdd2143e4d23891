"""Tests of the memories of the cores: limited size, equal addresses on all cores, and stored bytes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.coregrid.device.arena import CoreArena, FreeList, StridedCores, split_into_progressions
from tessera.coregrid.planning.memory import OutOfMemory
from tessera.geometry import Mesh

PAIR = StridedCores(0, (1, 2))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 40), st.booleans(), st.integers(0, 99)), max_size=40))
def test_allocations_do_not_overlap(steps: list[tuple[int, bool, int]]) -> None:
    memory, held = FreeList(200), []
    for size, from_bottom, which in steps:
        place = memory.allocate(size, from_bottom=from_bottom)
        if place is None:
            assert memory.largest_gap < size
            if held:
                memory.free(held.pop(which % len(held)))
            continue
        assert all(not len(place & held_place) for held_place in held)
        assert place.start >= 0
        assert place.stop <= 200
        held.append(place)
        assert memory.used == sum(map(len, held))
        assert memory.used + sum(map(len, memory.find_gaps())) == 200
    for place in held:
        memory.free(place)
    assert [len(gap) for gap in memory.find_gaps()] == [200]


def test_out_of_memory_names_core_required_and_free_bytes() -> None:
    arena = CoreArena(Mesh(2, 2), 1008)
    arena.allocate(600, "tensor")
    with pytest.raises(
        OutOfMemory, match=r"core \(0, 0\).*haloed input.*got '500 bytes'.*400 contiguous bytes.*use less"
    ):
        arena.allocate(500, "haloed input", do="use less")
    assert arena.used == arena.peak == 608


def test_buffers_of_cores_are_separate() -> None:
    arena = CoreArena(Mesh(2, 3), 4096)
    first, second = arena.allocate(256, "a"), arena.allocate(256, "b", from_bottom=True)
    for core in range(6):
        arena.view(core, first, torch.float32, (8, 8)).fill_(core)
        arena.view(core, second, torch.float32, (8, 8)).fill_(-core)
    every = arena.view_cores(StridedCores(0, (3, 1), (2, 1)), first, torch.float32, (8, 8))
    assert torch.equal(every[:, 0, 0, 0], torch.tensor([0.0, 2.0, 4.0]))
    assert torch.equal(arena.view(5, second, torch.float32, (8, 8)), torch.full((8, 8), -5.0))


def test_moving_a_buffer_up_keeps_its_bytes() -> None:
    arena = CoreArena(Mesh(1, 2), 1024)
    above, buffer = arena.allocate(128, "above"), arena.allocate(256, "moved")
    numbers = torch.randn(2, 8, 8)
    arena.view_cores(PAIR, buffer, torch.float32, (8, 8))[0].copy_(numbers)
    arena.free(above)
    arena.move_to_top(buffer)
    assert buffer.place.stop == 1024
    assert torch.equal(arena.view_cores(PAIR, buffer, torch.float32, (8, 8))[0], numbers)


def test_compact_defragments() -> None:
    arena, numbers = CoreArena(Mesh(1, 2), 1024), torch.randn(2, 4, 16)
    buffers = [arena.allocate(256, f"number {number}") for number in range(4)]
    for number in (1, 3):
        arena.view_cores(PAIR, buffers[number], torch.float32, (4, 16))[0].copy_(numbers + number)
    arena.free(buffers[0])
    arena.free(buffers[2])
    arena.compact(512)
    large = arena.allocate(512, "large")
    arena.view_cores(PAIR, large, torch.float32, (8, 16))[0].zero_()
    for number in (1, 3):
        assert torch.equal(arena.view_cores(PAIR, buffers[number], torch.float32, (4, 16))[0], numbers + number)
    arena.compact(1)
    with pytest.raises(OutOfMemory):
        arena.allocate(16, "too much")


@given(st.lists(st.integers(0, 50), unique=True, max_size=20))
def test_progressions_keep_the_order(cores: list[int]) -> None:
    assert [core for run in split_into_progressions(cores) for core in run] == cores
