"""Tests of boxes: their operations equal operations on sets of pixels."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.geometry import Box, Interval
from tessera.geometry.box import make_disjoint
from tessera.geometry.owners import OwnerIndex

parts = st.tuples(st.integers(-3, 4), st.integers(1, 5)).map(lambda part: (part[0], sum(part)))
full = st.builds(Box.of, parts, parts, parts)
any_part = parts | st.tuples(st.integers(-3, 5), st.integers(-3, 5))
boxes = st.builds(Box.of, any_part, any_part, any_part)


def list_pixels(box: Box) -> set[tuple[int, ...]]:
    return set(product(*(range(dim.start, dim.stop) for dim in box.dims)))


@settings(deadline=None)
@given(boxes, boxes)
def test_box_operations_equal_set_operations(a: Box, b: Box) -> None:
    assert list_pixels(a & b) == list_pixels(a) & list_pixels(b)
    assert (a in b) == (list_pixels(a) <= list_pixels(b))
    assert bool(a) == bool(list_pixels(a))
    assert a.size == len(list_pixels(a))
    left = list(a.subtract(b))
    assert set().union(*map(list_pixels, left)) == list_pixels(a) - list_pixels(b)
    assert sum(part.size for part in left) == len(list_pixels(a) - list_pixels(b)), "parts overlap"


@settings(deadline=None)
@given(boxes, boxes)
def test_hull_is_the_smallest_box_around_both(a: Box, b: Box) -> None:
    hull, both = a.hull(b), list_pixels(a) | list_pixels(b)
    assert both <= list_pixels(hull)
    if both:
        assert hull.origin == tuple(min(at) for at in zip(*both, strict=True))
        assert hull.shape == tuple(max(at) - min(at) + 1 for at in zip(*both, strict=True))


@settings(deadline=None)
@given(boxes, boxes, st.tuples(*[st.integers(-9, 9)] * 3))
def test_shift_and_relative_to(a: Box, frame: Box, step: tuple[int, ...]) -> None:
    moved = {tuple(p + s for p, s in zip(pixel, step, strict=True)) for pixel in list_pixels(a)}
    assert list_pixels(a.shift(step)) == moved
    assert a.relative_to(frame).shift(frame.origin) == a


@settings(deadline=None)
@given(st.lists(boxes, max_size=5))
def test_make_disjoint_keeps_the_pixels(many: list[Box]) -> None:
    disjoint = make_disjoint(many)
    everything = set().union(*map(list_pixels, many))
    assert set().union(*map(list_pixels, disjoint)) == everything
    assert sum(box.size for box in disjoint) == len(everything)
    assert all(box for box in disjoint)


@settings(deadline=None)
@given(full, st.lists(st.lists(full, max_size=3), min_size=1, max_size=4), st.data())
def test_owners_provide_every_pixel_once_and_the_preferred_worker_first(
    box: Box, shards: list[list[Box]], data: st.DataObject
) -> None:
    asking = data.draw(st.integers(0, len(shards) - 1))
    owned = [set().union(*map(list_pixels, shard)) for shard in shards]
    pixels = list_pixels(box)
    if not any(shards):
        return
    if not pixels <= set().union(*owned):
        with pytest.raises(ValueError, match=f"no worker owns Box.*, which worker {asking} needs"):
            OwnerIndex(shards).split_by_owner(box, asking)
        return
    parts = OwnerIndex(shards).split_by_owner(box, asking)
    assert sum(part.size for _, part in parts) == len(pixels)
    assert set().union(*(list_pixels(part) for _, part in parts)) == pixels
    assert all(part for _, part in parts)
    for worker, part in parts:
        assert list_pixels(part) <= owned[worker]
        assert worker == asking or not list_pixels(part) & owned[asking]


def test_a_box_of_one_owner_is_not_split() -> None:
    """Check that a neighbour's part stays one box next to the preferred worker's box."""
    shards = [[Box.of((2, 4), (2, 4))], [Box.of((0, 2), (0, 6))], [Box.of((2, 6), (0, 2))]]
    assert OwnerIndex(shards).split_by_owner(Box.of((0, 4), (0, 4)), 0) == [
        (0, Box.of((2, 4), (2, 4))),
        (1, Box.of((0, 2), (0, 4))),
        (2, Box.of((2, 4), (0, 2))),
    ]


def test_interval_operations() -> None:
    assert Interval(2, 5).slice == slice(2, 5)
    assert Interval(5, 2).slice == slice(5, 5)
    assert not Interval(3, 3)
    assert Interval(4, 9) - 4 == Interval(0, 5)
