"""Haloed shards: the worked example, and random cases against boxes and against plain indexing."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tessera.coregrid.planning.sticks import Sticks
from tessera.geometry import HaloPlan, Interval, Partition, Window


def test_the_worked_example() -> None:
    shards = [Interval(0, 8), Interval(8, 16), Interval(16, 24)]
    found = Sticks((1, 4, 6), Window.of(3, padding=1)).haloing(shards, shards)
    assert [(span.start, span.stop - 1) for span in found.ranges] == [(0, 27), (10, 37), (20, 47)]
    assert found.pads == (((0, 9), (15, 2), (23, 2)), ((5, 2), (13, 2), (21, 2)), ((3, 2), (11, 2), (19, 9)))
    assert found.local == (
        ((0, 9, 6), (6, 17, 2)),
        ((0, 9, 4), (4, 15, 4)),
        ((0, 9, 2), (2, 13, 6)),
    )
    assert found.remote == {
        (0, 1): ((1, 0, 5), (6, 7, 2)),
        (1, 0): ((0, 19, 4), (4, 25, 3)),
        (1, 2): ((1, 0, 3), (4, 5, 4)),
        (2, 1): ((0, 19, 2), (2, 23, 5)),
    }


def test_exact_moves_a_quarter_for_a_point_of_stride_two() -> None:
    window, sticks = Window.of(1, stride=2), (1, 8, 8)
    inputs, outputs = [Interval(i * 16, i * 16 + 16) for i in range(4)], [Interval(i * 4, i * 4 + 4) for i in range(4)]
    exact = Sticks(sticks, window).haloing(inputs, outputs, "exact")
    assert sum(exact.sizes) == 16
    assert sum(exact.moved()) == 16


windows = st.builds(
    lambda k, s, d, p: Window.of(k, stride=s, dilation=d, padding=p),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(1, 2), st.integers(1, 2)),
    st.tuples(*[st.tuples(st.integers(0, 3), st.integers(0, 3))] * 2),
)


def dealt(total: int, cores: int) -> list[Interval]:
    each = -(-total // cores)
    return [Interval(min(i * each, total), min((i + 1) * each, total)) for i in range(cores)]


@settings(max_examples=300, deadline=None)
@given(st.tuples(st.integers(1, 3), st.integers(3, 9), st.integers(3, 9)), windows, st.integers(1, 7))
def test_every_window_reads_its_own_pixels(sizes: tuple[int, int, int], window: Window, cores: int) -> None:
    try:
        sticks = Sticks(sizes, window)
    except ValueError:
        assume(False)
    inputs, outputs = dealt(int(np.prod(sizes)), cores), dealt(sticks.outputs, cores)
    for mode in ("span", "exact"):
        found = sticks.haloing(inputs, outputs, mode)
        for core, (span, size) in enumerate(zip(found.ranges, found.sizes, strict=True)):
            shard = np.full(size, -2)
            for placed, length in found.pads[core]:
                assert (shard[placed : placed + length] == -2).all()
                shard[placed : placed + length] = -1
            moves = [(core, run) for run in found.local[core]]
            moves += [(a, run) for (a, b), runs in found.remote.items() if b == core for run in runs]
            for source, (taken, placed, length) in moves:
                assert (shard[placed : placed + length] == -2).all()  # every stick comes once
                first = inputs[source].start + taken
                assert first + length <= inputs[source].stop
                shard[placed : placed + length] = np.arange(first, first + length)
            assert (shard != -2).all()
            kept = np.arange(span.start, span.stop)
            if mode == "exact":
                first = sticks.trace[outputs[core].start : max(outputs[core].start, outputs[core].stop)]
                kept = np.unique(first[:, None] + sticks.taps)
            assert (shard == sticks.source[kept]).all()


@settings(max_examples=100, deadline=None)
@given(st.tuples(st.integers(1, 2), st.integers(3, 8), st.integers(3, 8)), windows, st.integers(1, 5))
def test_exact_needs_are_those_of_the_boxes(sizes: tuple[int, int, int], window: Window, cores: int) -> None:
    """A window without holes touches just the boxes that the geometry of the ranks finds."""
    assume(window.dilation == (1, 1) and all(s <= k for s, k in zip(window.stride, window.kernel, strict=True)))
    try:
        sticks = Sticks(sizes, window)
    except ValueError:
        assume(False)
    inputs, outputs = dealt(int(np.prod(sizes)), cores), dealt(sticks.outputs, cores)
    found = sticks.haloing(inputs, outputs, "exact")
    plan = HaloPlan(
        Partition.runs(sizes, [len(run) for run in inputs]),
        window,
        Partition.runs((sizes[0], sticks.out_height, sticks.out_width), [len(run) for run in outputs]),
    )
    moved = {link: sum(length for _, _, length in runs) for link, runs in found.remote.items()}
    assert moved == plan.bytes_between(1)
    for core, worker in enumerate(plan.workers):
        own = sum(length for _, _, length in found.local[core])
        assert own == sum(move.taken.size for move in worker.keeps)
        assert sum(length for _, length in found.pads[core]) == sum(box.size for box in worker.pads)
