"""Tests of haloed shards: an example, random cases compared with box geometry and plain indexing, and stick counts."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tessera.coregrid.config import ShardLayout
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.planning.halo import HaloCounts, HaloRuns, PaddedSticks, count_halo, plan_halo_runs
from tessera.coregrid.planning.sharding import shard_convolution
from tessera.geometry import HaloPlan, Interval, Mesh, Partition, Window
from tests.coregrid.planning.shapes import convolutions, square


def test_halo_runs_of_a_small_example() -> None:
    shards = [Interval(0, 8), Interval(8, 16), Interval(16, 24)]
    runs = PaddedSticks((1, 4, 6), Window.of(3, padding=1)).build_halo_runs(shards, shards)
    assert [(span.start, span.stop - 1) for span in runs.ranges] == [(0, 27), (10, 37), (20, 47)]
    assert runs.pads == (((0, 9), (15, 2), (23, 2)), ((5, 2), (13, 2), (21, 2)), ((3, 2), (11, 2), (19, 9)))
    assert runs.local == (
        ((0, 9, 6), (6, 17, 2)),
        ((0, 9, 4), (4, 15, 4)),
        ((0, 9, 2), (2, 13, 6)),
    )
    assert runs.remote == {
        (0, 1): ((1, 0, 5), (6, 7, 2)),
        (1, 0): ((0, 19, 4), (4, 25, 3)),
        (1, 2): ((1, 0, 3), (4, 5, 4)),
        (2, 1): ((0, 19, 2), (2, 23, 5)),
    }


def test_exact_mode_moves_a_quarter_for_stride_two() -> None:
    window, sticks = Window.of(1, stride=2), (1, 8, 8)
    inputs, outputs = [Interval(i * 16, i * 16 + 16) for i in range(4)], [Interval(i * 4, i * 4 + 4) for i in range(4)]
    exact = PaddedSticks(sticks, window).build_halo_runs(inputs, outputs, "exact")
    assert sum(exact.sizes) == 16
    moved = [*exact.local, *exact.remote.values()]
    assert sum(length for runs in moved for _, _, length in runs) == 16


windows = st.builds(
    lambda k, s, d, p: Window.of(k, stride=s, dilation=d, padding=p),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(1, 2), st.integers(1, 2)),
    st.tuples(*[st.tuples(st.integers(0, 3), st.integers(0, 3))] * 2),
)


def split_evenly(total: int, cores: int) -> list[Interval]:
    each = -(-total // cores)
    return [Interval(min(i * each, total), min((i + 1) * each, total)) for i in range(cores)]


@settings(max_examples=300, deadline=None)
@given(st.tuples(st.integers(1, 3), st.integers(3, 9), st.integers(3, 9)), windows, st.integers(1, 7))
def test_every_window_reads_its_own_pixels(sizes: tuple[int, int, int], window: Window, cores: int) -> None:
    try:
        sticks = PaddedSticks(sizes, window)
    except ValueError:
        assume(False)
    inputs, outputs = split_evenly(int(np.prod(sizes)), cores), split_evenly(sticks.outputs, cores)
    for mode in ("span", "exact"):
        result = sticks.build_halo_runs(inputs, outputs, mode)
        for core, (span, size) in enumerate(zip(result.ranges, result.sizes, strict=True)):
            shard = np.full(size, -2)
            for placed, length in result.pads[core]:
                assert (shard[placed : placed + length] == -2).all()
                shard[placed : placed + length] = -1
            moves = [(core, run) for run in result.local[core]]
            moves += [(a, run) for (a, b), runs in result.remote.items() if b == core for run in runs]
            for source, (read_from, placed, length) in moves:
                assert (shard[placed : placed + length] == -2).all()  # every stick is written once
                first = inputs[source].start + read_from
                assert first + length <= inputs[source].stop
                shard[placed : placed + length] = np.arange(first, first + length)
            assert (shard != -2).all()
            kept = np.arange(span.start, span.stop)
            if mode == "exact":
                first = sticks.corners[outputs[core].start : max(outputs[core].start, outputs[core].stop)]
                kept = np.unique(first[:, None] + sticks.taps)
            assert (shard == sticks.input_stick_numbers[kept]).all()


@settings(max_examples=100, deadline=None)
@given(st.tuples(st.integers(1, 2), st.integers(3, 8), st.integers(3, 8)), windows, st.integers(1, 5))
def test_exact_mode_equals_the_halo_plan_of_geometry(sizes: tuple[int, int, int], window: Window, cores: int) -> None:
    """Check that the exact halo of a window without gaps equals the boxes of the halo plan in `geometry`."""
    assume(window.dilation == (1, 1) and all(s <= k for s, k in zip(window.stride, window.kernel, strict=True)))
    try:
        sticks = PaddedSticks(sizes, window)
    except ValueError:
        assume(False)
    inputs, outputs = split_evenly(int(np.prod(sizes)), cores), split_evenly(sticks.outputs, cores)
    result = sticks.build_halo_runs(inputs, outputs, "exact")
    plan = HaloPlan(
        Partition.split_runs(sizes, [len(run) for run in inputs]),
        window,
        Partition.split_runs((sizes[0], sticks.out_height, sticks.out_width), [len(run) for run in outputs]),
    )
    moved = {link: sum(length for _, _, length in runs) for link, runs in result.remote.items()}
    assert moved == plan.count_link_bytes(1)
    for core, worker in enumerate(plan.workers):
        own = sum(length for _, _, length in result.local[core])
        assert own == sum(move.source_box.size for move in worker.keeps)
        assert sum(length for _, length in result.pads[core]) == sum(box.size for box in worker.pads)


def count_runs(result: HaloRuns) -> HaloCounts:
    cores = range(len(result.sizes))
    links = {link: sum(length for _, _, length in runs) for link, runs in result.remote.items()}
    return HaloCounts(
        sizes=result.sizes,
        copied=tuple(sum(length for _, _, length in runs) for runs in result.local),
        received=tuple(sum(n for (_, to), n in links.items() if to == core) for core in cores),
        sent=tuple(sum(n for (source, _), n in links.items() if source == core) for core in cores),
    )


@settings(max_examples=300, deadline=None)
@given(convolutions(), st.integers(1, 40), st.booleans(), st.sampled_from(["span", "exact"]))
def test_halo_counts_equal_counts_of_the_runs(conv: Convolution, cores: int, whole: bool, mode: str) -> None:
    sharding = shard_convolution(conv, ShardLayout.HEIGHT, Mesh(1, cores), whole_grid=whole)
    counts = count_halo(conv, sharding, mode)
    runs = plan_halo_runs(conv, sharding, mode)
    assert counts == count_runs(runs)
    assert counts.largest == max(runs.sizes)
    pads = sum(length for runs_of_core in runs.pads for _, length in runs_of_core)
    assert sum(counts.sizes) - sum(counts.copied) - sum(counts.received) == pads


def test_shard_of_eight_image_lines_reads_ten() -> None:
    conv = square(8, 56, 64, 64)
    sharding = shard_convolution(conv, ShardLayout.HEIGHT, Mesh(7, 8), whole_grid=True)
    counts = count_halo(conv, sharding)
    assert set(counts.sizes) == {10 * 58}
    assert counts.received[1] == 2 * 56  # one line from the core above, one from the core below
    assert counts.received[0] == counts.received[6] == 56  # the first and last core of an image
