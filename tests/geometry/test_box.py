"""Boxes as sets of pixels."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.geometry import Box, Interval
from tessera.geometry.box import disjoint
from tessera.geometry.owners import Owners

parts = st.tuples(st.integers(-3, 4), st.integers(1, 5)).map(lambda part: (part[0], sum(part)))
full = st.builds(Box.of, parts, parts, parts)
any_part = parts | st.tuples(st.integers(-3, 5), st.integers(-3, 5))
boxes = st.builds(Box.of, any_part, any_part, any_part)


def pixels(box: Box) -> set[tuple[int, ...]]:
    return set(product(*(range(dim.start, dim.stop) for dim in box.dims)))


@settings(deadline=None)
@given(boxes, boxes)
def test_two_boxes_are_two_sets(a: Box, b: Box) -> None:
    assert pixels(a & b) == pixels(a) & pixels(b)
    assert (a in b) == (pixels(a) <= pixels(b))
    assert bool(a) == bool(pixels(a))
    assert a.size == len(pixels(a))
    left = list(a.minus(b))
    assert set().union(*map(pixels, left)) == pixels(a) - pixels(b)
    assert sum(part.size for part in left) == len(pixels(a) - pixels(b)), "parts overlap"


@settings(deadline=None)
@given(boxes, boxes)
def test_a_hull_is_the_smallest_box_around_both(a: Box, b: Box) -> None:
    hull, both = a.hull(b), pixels(a) | pixels(b)
    assert both <= pixels(hull)
    if both:
        assert hull.origin == tuple(min(at) for at in zip(*both, strict=True))
        assert hull.shape == tuple(max(at) - min(at) + 1 for at in zip(*both, strict=True))


@settings(deadline=None)
@given(boxes, boxes, st.tuples(*[st.integers(-9, 9)] * 3))
def test_a_box_elsewhere(a: Box, frame: Box, step: tuple[int, ...]) -> None:
    moved = {tuple(p + s for p, s in zip(pixel, step, strict=True)) for pixel in pixels(a)}
    assert pixels(a.shifted(step)) == moved
    assert a.within(frame).shifted(frame.origin) == a


@settings(deadline=None)
@given(st.lists(boxes, max_size=5))
def test_disjoint_boxes_of_the_same_pixels(many: list[Box]) -> None:
    found = disjoint(many)
    everything = set().union(*map(pixels, many))
    assert set().union(*map(pixels, found)) == everything
    assert sum(box.size for box in found) == len(everything)
    assert all(box for box in found)


@settings(deadline=None)
@given(full, st.lists(st.lists(full, max_size=3), min_size=1, max_size=4), st.data())
def test_owners_give_every_pixel_once_and_their_own_first(
    box: Box, shards: list[list[Box]], data: st.DataObject
) -> None:
    asking = data.draw(st.integers(0, len(shards) - 1))
    owned = [set().union(*map(pixels, shard)) for shard in shards]
    wanted = pixels(box)
    if not any(shards):
        return
    if not wanted <= set().union(*owned):
        with pytest.raises(ValueError, match=f"nobody owns Box.*, which worker {asking} needs"):
            Owners(shards).of(box, asking)
        return
    found = Owners(shards).of(box, asking)
    assert sum(part.size for _, part in found) == len(wanted)
    assert set().union(*(pixels(part) for _, part in found)) == wanted
    assert all(part for _, part in found)
    for worker, part in found:
        assert pixels(part) <= owned[worker]
        assert worker == asking or not pixels(part) & owned[asking]


def test_owners_do_not_split_what_one_of_them_has() -> None:
    """A neighbour's border is one box, even where it reaches around the asking worker's own."""
    shards = [[Box.of((2, 4), (2, 4))], [Box.of((0, 2), (0, 6))], [Box.of((2, 6), (0, 2))]]
    assert Owners(shards).of(Box.of((0, 4), (0, 4)), 0) == [
        (0, Box.of((2, 4), (2, 4))),
        (1, Box.of((0, 2), (0, 4))),
        (2, Box.of((2, 4), (0, 2))),
    ]


def test_intervals() -> None:
    assert Interval(2, 5).slice == slice(2, 5)
    assert Interval(5, 2).slice == slice(5, 5)
    assert not Interval(3, 3)
    assert Interval(4, 9) - 4 == Interval(0, 5)
