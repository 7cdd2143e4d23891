"""Tests of partitions: every pixel has exactly one owner, for every kind of split."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.geometry import Box, Mesh, Partition
from tessera.geometry.partition import build_mesh, split_by_lengths, split_evenly
from tests.geometry.strategies import lengths, partitions

sizes = st.lists(st.integers(1, 6), min_size=2, max_size=4).map(tuple)


@settings(max_examples=200, deadline=None)
@given(sizes, st.integers(1, 6), st.data())
def test_every_pixel_has_an_owner(sizes: tuple[int, ...], workers: int, data: st.DataObject) -> None:
    partition = data.draw(partitions(sizes, workers))
    owners = np.zeros(sizes, dtype=int)
    for worker, shard in enumerate(partition.shards):
        for box in shard:
            assert box
            assert box in partition.get_box(worker)
            owners[box.slices] += 1
    assert partition.workers == workers
    everywhere = partition == Partition.replicate(sizes, workers)
    assert (owners == (workers if everywhere else 1)).all()


@settings(deadline=None)
@given(st.integers(0, 40), st.integers(1, 9), st.integers(1, 5))
def test_even_parts_differ_by_one_unit_at_most(size: int, parts: int, multiple: int) -> None:
    intervals = split_evenly(size, parts, multiple)
    assert [i for part in intervals for i in range(part.start, part.stop)] == list(range(size))
    assert len(intervals) == parts
    full = [len(part) for part in intervals if part.stop < size]
    assert all(length % multiple == 0 for length in full)
    units = [-(-len(part) // multiple) for part in intervals]
    assert max(units) - min(units) <= 1


@settings(deadline=None)
@given(sizes, st.integers(1, 5), st.data())
def test_runs_are_consecutive_pixels(sizes: tuple[int, ...], workers: int, data: st.DataObject) -> None:
    run_lengths = data.draw(lengths(prod(sizes), workers))
    partition = Partition.split_runs(sizes, run_lengths)
    sticks = np.arange(prod(sizes)).reshape(sizes)
    flat = [[int(s) for box in shard for s in sticks[box.slices].ravel()] for shard in partition.shards]
    assert [len(run) for run in flat] == run_lengths
    assert [s for run in flat for s in run] == list(range(prod(sizes)))
    assert all(len(shard) <= 2 * len(sizes) - 1 for shard in partition.shards), "more boxes than a run needs"


def test_grids_of_one_two_and_three_dims() -> None:
    assert [len(s[0].dims[1]) for s in Partition.split_by_grid((2, 10), Mesh(2, 2)).shards] == [3, 3, 2, 2]
    assert Partition.split_by_grid((1, 4, 4), Mesh(2, 2)).shards[3] == (Box.of((0, 1), (2, 4), (2, 4)),)
    assert Partition.split_by_grid((1, 5, 4, 4), Mesh(2, 2)).shards[3] == (Box.of((0, 1), (0, 5), (2, 4), (2, 4)),)
    assert Partition.split_by_grid((1, 5, 4, 4), (2, 1, 2)).shards[1] == (Box.of((0, 1), (0, 3), (0, 4), (2, 4)),)
    assert Partition.split_by_grid((1, 2, 9), Mesh(3, 1)).shards[2] == (), "more rows of workers than of pixels"


def test_a_partition_from_boxes_ends_at_the_last_pixel() -> None:
    partition = Partition.of([Box.of((0, 1), (0, 2)), [Box.of((0, 1), (2, 5)), Box.of((0, 1), (7, 7))], []])
    assert partition.sizes == (1, 5)
    assert [len(shard) for shard in partition.shards] == [1, 1, 0]
    assert Partition.of(partition) is partition
    assert repr(partition) == "Partition(1x5 over 3: [0:1, 0:2] [0:1, 2:5] [])"
    with pytest.raises(ValueError, match="a partition needs a box that is not empty"):
        Partition.of([Box.of((0, 1), (3, 3)), []])


@pytest.mark.parametrize(
    ("method", "parts", "mesh"),
    [
        ("vertical", 3, Mesh(1, 3)),
        ("horizontal", 3, Mesh(3, 1)),
        ("square", 9, Mesh(3, 3)),
        ("square", 1, Mesh(1, 1)),
        ("2X5", 10, Mesh(2, 5)),
    ],
)
def test_slice_methods(method: str, parts: int, mesh: Mesh) -> None:
    assert build_mesh(method, parts) == mesh


@pytest.mark.parametrize(
    ("method", "parts", "says"),
    [
        ("diagonal", 4, "unknown slice method 'diagonal'; allowed: vertical, horizontal, square, RxC"),
        ("2x", 4, "unknown slice method '2x'"),
        ("0x4", 4, "unknown slice method '0x4'"),
        ("2x1x3", 6, "2x1x3 splits 3 dims, but the image has 2"),
        ("2x3", 4, "2x3 makes 6 parts, not 4; allowed: 1x4, 2x2, 4x1"),
        ("vertical", 0, "an image is split into 1 part or more, got 0"),
    ],
)
def test_invalid_slice_methods_are_refused(method: str, parts: int, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        build_mesh(method, parts)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: split_evenly(5, 0), "cannot split 5 pixels into 0 parts"),
        (lambda: split_evenly(-1, 2), "cannot split -1 pixels"),
        (lambda: split_by_lengths(6, [2, 3]), r"parts of \[2, 3\] pixels do not add up to 6"),
        (lambda: split_by_lengths(6, [8, -2]), r"parts of \[8, -2\] pixels do not add up to 6"),
        (lambda: Mesh(0, 2), "at least one row and one column"),
        (lambda: Mesh.parse("four"), "a mesh is written ROWSxCOLS"),
        (lambda: Mesh(2, 2).get_position(4), "worker 4 is not on a mesh of 4"),
        (lambda: Mesh(2, 2).get_worker(2, 0), r"\(2, 0\) is not on a mesh of 2x2"),
    ],
)
def test_invalid_splits_are_refused(call: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        call()
