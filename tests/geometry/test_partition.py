"""Who owns what: every pixel, and once, however it is cut."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.geometry import Box, Mesh, Partition
from tessera.geometry.partition import cuts_at, even_cuts, mesh_of
from tests.geometry.drawn import lengths, partitions

sizes = st.lists(st.integers(1, 6), min_size=2, max_size=4).map(tuple)


@settings(max_examples=200, deadline=None)
@given(sizes, st.integers(1, 6), st.data())
def test_every_pixel_has_an_owner(sizes: tuple[int, ...], workers: int, data: st.DataObject) -> None:
    found = data.draw(partitions(sizes, workers))
    owners = np.zeros(sizes, dtype=int)
    for worker, shard in enumerate(found.shards):
        for box in shard:
            assert box
            assert box in found.hull(worker)
            owners[box.slices] += 1
    assert found.workers == workers
    everywhere = found == Partition.everywhere(sizes, workers)
    assert (owners == (workers if everywhere else 1)).all()


@settings(deadline=None)
@given(st.integers(0, 40), st.integers(1, 9), st.integers(1, 5))
def test_even_cuts_are_even(size: int, parts: int, multiple: int) -> None:
    found = even_cuts(size, parts, multiple)
    assert [i for part in found for i in range(part.start, part.stop)] == list(range(size))
    assert len(found) == parts
    full = [len(part) for part in found if part.stop < size]
    assert all(length % multiple == 0 for length in full)
    units = [-(-len(part) // multiple) for part in found]
    assert max(units) - min(units) <= 1


@settings(deadline=None)
@given(sizes, st.integers(1, 5), st.data())
def test_runs_are_consecutive_sticks(sizes: tuple[int, ...], workers: int, data: st.DataObject) -> None:
    wanted = data.draw(lengths(prod(sizes), workers))
    found = Partition.runs(sizes, wanted)
    sticks = np.arange(prod(sizes)).reshape(sizes)
    flat = [[int(s) for box in shard for s in sticks[box.slices].ravel()] for shard in found.shards]
    assert [len(mine) for mine in flat] == wanted
    assert [s for mine in flat for s in mine] == list(range(prod(sizes)))
    assert all(len(shard) <= 2 * len(sizes) - 1 for shard in found.shards), "more boxes than a run needs"


def test_grids_of_one_two_and_three_dims() -> None:
    assert [len(s[0].dims[1]) for s in Partition.grid((2, 10), Mesh(2, 2)).shards] == [3, 3, 2, 2]
    assert Partition.grid((1, 4, 4), Mesh(2, 2)).shards[3] == (Box.of((0, 1), (2, 4), (2, 4)),)
    assert Partition.grid((1, 5, 4, 4), Mesh(2, 2)).shards[3] == (Box.of((0, 1), (0, 5), (2, 4), (2, 4)),)
    assert Partition.grid((1, 2, 9), Mesh(3, 1)).shards[2] == (), "more rows of workers than of pixels"


def test_samples_some_workers_have_none() -> None:
    assert [bool(shard) for shard in Partition.samples((2, 3, 3), 4).shards] == [True, True, False, False]


def test_a_partition_from_boxes_ends_where_they_do() -> None:
    found = Partition.of([Box.of((0, 1), (0, 2)), [Box.of((0, 1), (2, 5)), Box.of((0, 1), (7, 7))], []])
    assert found.sizes == (1, 5)
    assert [len(shard) for shard in found.shards] == [1, 1, 0]
    assert Partition.of(found) is found
    assert repr(found) == "Partition(1x5 over 3: [0:1, 0:2] [0:1, 2:5] [])"
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
    assert mesh_of(method, parts) == mesh


@pytest.mark.parametrize(
    ("method", "parts", "says"),
    [
        ("diagonal", 4, "unknown slice method 'diagonal'; allowed: vertical, horizontal, square, RxC"),
        ("2x", 4, "unknown slice method '2x'"),
        ("0x4", 4, "unknown slice method '0x4'"),
        ("square", 6, "6 parts do not make a square; possible are 1x6, 2x3, 3x2, 6x1"),
        ("2x3", 4, "2x3 makes 6 parts, not 4; possible are 1x4, 2x2, 4x1"),
        ("vertical", 0, "an image is cut into 1 part or more, got 0"),
    ],
)
def test_slice_methods_that_do_not_work(method: str, parts: int, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        mesh_of(method, parts)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: even_cuts(5, 0), "cannot cut 5 pixels into 0 parts"),
        (lambda: even_cuts(-1, 2), "cannot cut -1 pixels"),
        (lambda: cuts_at(6, [2, 3]), r"parts of \[2, 3\] pixels do not make 6"),
        (lambda: cuts_at(6, [8, -2]), r"parts of \[8, -2\] pixels do not make 6"),
        (lambda: Mesh(0, 2), "at least one row and one column"),
        (lambda: Mesh.parse("four"), "a mesh is written ROWSxCOLS"),
        (lambda: Mesh(2, 2).position(4), "worker 4 is not on a mesh of 4"),
        (lambda: Mesh(2, 2).worker(2, 0), r"\(2, 0\) is not on a mesh of 2x2"),
    ],
)
def test_cuts_that_do_not_work(call: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        call()
