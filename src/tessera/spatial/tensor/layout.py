"""Layouts: which part of a tensor each rank holds.

Every dim of a tensor is a product of *factors*. An ordinary dim has one factor. A dim that a reshape has merged from
several dims, such as the tokens of `x.flatten(2)`, keeps their factors: the tokens of a rank that holds some rows and
some columns are not one interval, but its rows and its columns are. A rank holds a box of factors, and a layout lists
the boxes of all ranks.

        tensor (1, 8, 4, 6) on 2x2 ranks        x.flatten(2): (1, 8, 24), factors ((1,), (8,), (4, 6))

           cols 0:3  cols 3:6                    rank 1 holds the tokens 3 4 5 9 10 11:
          +---------+---------+                  rows 0:2 and columns 3:6 of the factors (4, 6)
          | rank 0  | rank 1  |  rows 0:2
          +---------+---------+
          | rank 2  | rank 3  |  rows 2:4
          +---------+---------+

Layouts are interned: equal layouts are one object, so that they can be compared with `is` and used in cache keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, wraps
from itertools import pairwise
from math import prod
from threading import Lock
from typing import Any, TypeVar, cast
from weakref import WeakValueDictionary

from tessera.geometry import Box, Interval
from tessera.geometry.partition import split_evenly

Factors = tuple[tuple[int, ...], ...]  # sizes of the factors of each dim
Intervals = tuple[Interval, ...]


@dataclass(frozen=True, eq=False)
class TensorLayout:
    """The boxes of a tensor that the ranks hold. Build it with `make_layout` or one of the functions below."""

    factors: Factors
    boxes: tuple[Box, ...]

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole tensor."""
        return tuple(prod(sizes) for sizes in self.factors)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of all factors in order."""
        return tuple(size for dim in self.factors for size in dim)

    @cached_property
    def positions(self) -> tuple[range, ...]:
        """Positions of the factors of each dim in `sizes` and in the boxes."""
        ranges, start = [], 0
        for dim in self.factors:
            ranges.append(range(start, start + len(dim)))
            start += len(dim)
        return tuple(ranges)

    @cached_property
    def ranks(self) -> int:
        return len(self.boxes)

    @cached_property
    def is_whole(self) -> bool:
        """Whether every rank holds the whole tensor."""
        whole = Box.from_sizes(self.sizes)
        return all(box == whole for box in self.boxes)

    @cached_property
    def is_exclusive(self) -> bool:
        """Whether every element is held by exactly one rank."""
        return sum(box.size for box in self.boxes) == prod(self.sizes) and not any(
            first & second for i, first in enumerate(self.boxes) for second in self.boxes[i + 1 :]
        )

    @cached_property
    def has_empty_part(self) -> bool:
        """Whether some rank holds no element. Equal on all ranks, so that all ranks decide identically."""
        return any(not box.size for box in self.boxes)

    @cached_property
    def has_thin_part(self) -> bool:
        """Whether some rank holds at most one index of a larger dim, which makes the strides of its part ambiguous."""
        return any(
            len(part) < min(2, size) for box in self.boxes for part, size in zip(box.dims, self.sizes, strict=True)
        )

    @cached_property
    def split_dims(self) -> tuple[int, ...]:
        """Dims that some rank holds only in part."""
        return tuple(
            dim
            for dim, positions in enumerate(self.positions)
            if any(len(box.dims[at]) != self.sizes[at] for box in self.boxes for at in positions)
        )

    @cached_property
    def is_plain(self) -> bool:
        """Whether every dim has at most one factor, so that a rank's part is a box of the tensor itself."""
        return all(len(dim) <= 1 for dim in self.factors)

    def get_factor_shape(self, rank: int) -> tuple[int, ...]:
        """Return the shape of a rank's part, one entry per factor."""
        return self.boxes[rank].shape

    def get_local_shape(self, rank: int) -> tuple[int, ...]:
        """Return the shape of a rank's part, one entry per dim."""
        lengths = self.boxes[rank].shape
        return tuple(prod(lengths[at] for at in positions) for positions in self.positions)

    def get_dim_intervals(self, dim: int) -> Intervals:
        """Return the interval of a dim with at most one factor that each rank holds."""
        positions = self.positions[dim]
        if not positions:
            return (Interval(0, 1),) * self.ranks
        (at,) = positions
        return tuple(box.dims[at] for box in self.boxes)

    def get_dim_box(self, rank: int) -> Box:
        """Return a rank's box with one interval per dim; the layout must be plain."""
        return Box(tuple(self.get_dim_intervals(dim)[rank] for dim in range(len(self.factors))))

    def __repr__(self) -> str:
        return f"TensorLayout({'x'.join(map(str, self.shape))}: {' '.join(repr(box)[3:] for box in self.boxes)})"


_interned: WeakValueDictionary[tuple[Factors, tuple[Box, ...]], TensorLayout] = WeakValueDictionary()
_lock = Lock()


def make_layout(factors: Sequence[Sequence[int]], boxes: Sequence[Box]) -> TensorLayout:
    """Return the layout with these factors and boxes, in its simplest form.

    Factors of one dim are merged where the inner factor is whole on every rank; factors of size one that every rank has
    are dropped.

    >>> rows = [Box.of((0, 2), (0, 6)), Box.of((2, 4), (0, 6))]
    >>> make_layout([[4, 6]], rows)
    TensorLayout(24: (0:12) (12:24))
    """
    simple_factors: list[tuple[int, ...]] = []
    columns: list[list[Interval]] = []  # the intervals of each factor, by rank
    at = 0
    for dim in factors:
        sizes: list[int] = []
        kept: list[list[Interval]] = []
        for size in dim:
            column = [box.dims[at] for box in boxes]
            at += 1
            whole = all(part.start == 0 and part.stop == size for part in column)
            if whole and size == 1:
                continue
            if whole and kept:
                kept[-1] = [Interval(part.start * size, part.stop * size) for part in kept[-1]]
                sizes[-1] *= size
                continue
            sizes.append(size)
            kept.append(column)
        simple_factors.append(tuple(sizes))
        columns += kept
    key = tuple(simple_factors), tuple(Box(tuple(column[rank] for column in columns)) for rank in range(len(boxes)))
    layout = _interned.get(key)
    if layout is None:
        with _lock:  # ranks can be threads
            layout = _interned.setdefault(key, TensorLayout(*key))
    return layout


def make_plain_layout(shape: Sequence[int], boxes: Sequence[Box]) -> TensorLayout:
    """Return the layout of a tensor of which every rank holds a box."""
    return make_layout([(size,) for size in shape], boxes)


def make_whole(shape: Sequence[int], ranks: int) -> TensorLayout:
    """Return the layout of a tensor that every rank holds whole."""
    return make_plain_layout(shape, [Box.from_sizes(shape)] * ranks)


def split_dims_evenly(shape: Sequence[int], dims: Sequence[int], mesh: Sequence[int]) -> TensorLayout:
    """Return the layout that splits `dims` evenly over the axes of a mesh; ranks are numbered last axis fastest.

    If there are fewer dims than axes, the leading axes split the first dim together.

    >>> split_dims_evenly((1, 8, 4, 6), (2, 3), (2, 2))
    TensorLayout(1x8x4x6: (0:8, 0:2, 0:3) (0:8, 0:2, 3:6) (0:8, 2:4, 0:3) (0:8, 2:4, 3:6))
    """
    lead = len(mesh) - len(dims) + 1
    counts = (prod(mesh[:lead]), *mesh[lead:]) if len(dims) < len(mesh) else tuple(mesh)
    parts = {dim: split_evenly(shape[dim], count) for dim, count in zip(dims[-len(counts) :], counts, strict=True)}
    boxes = []
    for rank in range(prod(counts)):
        place = dict(zip(parts, _unravel(rank, counts), strict=True))
        intervals = [parts[dim][place[dim]] if dim in parts else Interval(0, size) for dim, size in enumerate(shape)]
        boxes.append(Box(tuple(intervals)))
    return make_plain_layout(shape, boxes)


def _unravel(index: int, counts: Sequence[int]) -> list[int]:
    place = []
    for count in reversed(counts):
        index, rest = divmod(index, count)
        place.append(rest)
    return place[::-1]


Derive = TypeVar("Derive", bound=Callable[..., TensorLayout | None])


def cache_layouts(derive: Derive) -> Derive:
    """Decorator: cache a function that derives a layout from a layout, because every operator calls such functions."""
    cached = lru_cache(maxsize=1 << 10)(derive)

    @wraps(derive)
    def get(layout: TensorLayout, *args: Any) -> TensorLayout | None:
        return cached(layout, *[tuple(value) if isinstance(value, list) else value for value in args])

    return cast(Derive, get)


@cache_layouts
def permute(layout: TensorLayout, order: Sequence[int]) -> TensorLayout:
    """Return the layout of a tensor with permuted dims."""
    at = [position for dim in order for position in layout.positions[dim]]
    return make_layout(
        [layout.factors[dim] for dim in order], [Box(tuple(box.dims[i] for i in at)) for box in layout.boxes]
    )


@cache_layouts
def insert_dim(layout: TensorLayout, dim: int) -> TensorLayout:
    """Return the layout of a tensor with a new dim of size one at position `dim`."""
    return make_layout((*layout.factors[:dim], (), *layout.factors[dim:]), layout.boxes)


@cache_layouts
def remove_dim(layout: TensorLayout, dim: int) -> TensorLayout | None:
    """Return the layout without a dim of size one; None if the dim is split, so that some ranks do not hold it."""
    if layout.factors[dim]:
        return None
    return make_layout((*layout.factors[:dim], *layout.factors[dim + 1 :]), layout.boxes)


@cache_layouts
def replace_dim(layout: TensorLayout, dim: int, size: int, intervals: Sequence[Interval]) -> TensorLayout:
    """Return the layout with a different size of one dim; each rank holds one of `intervals` of this dim."""
    first = layout.positions[dim].start if layout.positions[dim] else sum(map(len, layout.factors[:dim]))
    last = first + len(layout.factors[dim])
    boxes = [
        Box((*box.dims[:first], part, *box.dims[last:])) for box, part in zip(layout.boxes, intervals, strict=True)
    ]
    return make_layout((*layout.factors[:dim], (size,), *layout.factors[dim + 1 :]), boxes)


@cache_layouts
def slice_dim(layout: TensorLayout, dim: int, start: int, stop: int, step: int) -> TensorLayout | None:
    """Return the layout of `x[start:stop:step]` along a dim; None if a merged dim is sliced in part."""
    size = max(0, -(-(stop - start) // step))
    if len(layout.factors[dim]) > 1:
        return layout if (start, stop, step) == (0, layout.shape[dim], 1) else None
    parts = []
    for part in layout.get_dim_intervals(dim):
        first, last = -(-(part.start - start) // step), -(-(part.stop - start) // step)
        first = min(max(first, 0), size)
        parts.append(Interval(first, max(first, min(last, size))))
    return replace_dim(layout, dim, size, parts)


@cache_layouts
def reshape(layout: TensorLayout, shape: Sequence[int]) -> TensorLayout | None:
    """Return the layout of a reshaped tensor in which every rank keeps its elements; None if there is none.

    Dims are merged by joining their factors, and divided between factors. A factor can be divided itself if its inner
    part is whole on every rank.

    >>> tiles = split_dims_evenly((2, 8, 4, 6), (2, 3), (2, 2))
    >>> reshape(tiles, (2, 8, 24)).factors
    ((2,), (8,), (4, 6))
    >>> reshape(reshape(tiles, (2, 8, 24)), (2, 2, 4, 4, 6)).factors
    ((2,), (2,), (4,), (4,), (6,))
    >>> reshape(tiles, (2, 8, 4, 2, 3)).boxes[1]
    Box(0:2, 0:8, 0:2, 1:2, 0:3)
    >>> reshape(tiles, (2, 8, 4, 3, 2))
    """
    if 0 in layout.shape:
        return None
    sizes = list(layout.sizes)
    columns = [[box.dims[at] for box in layout.boxes] for at in range(len(sizes))]
    factors: list[tuple[int, ...]] = []
    result: list[list[Interval]] = []
    at = 0
    for target in shape:
        dim: list[int] = []
        left = target
        while left > 1:
            if at == len(sizes):
                return None
            size, column = sizes[at], columns[at]
            if left % size == 0:
                dim.append(size)
                result.append(column)
                left //= size
                at += 1
            elif size % left == 0:
                inner = size // left
                if all(part.start % inner == 0 and part.stop % inner == 0 for part in column):
                    outer_part = [Interval(part.start // inner, part.stop // inner) for part in column]
                    inner_part = [Interval(0, inner)] * len(column)
                elif all(part.start // inner == (part.stop - 1) // inner for part in column if len(part)):
                    return None  # a rank holds part of one outer index: possible, but not worth a rule
                else:
                    return None
                dim.append(left)
                result.append(outer_part)
                sizes[at], columns[at] = inner, inner_part
                left = 1
            else:
                return None
        factors.append(tuple(dim))
    while at < len(sizes):  # factors of size one that not every rank has
        if sizes[at] != 1 or not factors:
            return None
        factors[-1] = (*factors[-1], 1)
        result.append(columns[at])
        at += 1
    return make_layout(factors, [Box(tuple(column[rank] for column in result)) for rank in range(layout.ranks)])


@cache_layouts
def expand(layout: TensorLayout, shape: Sequence[int]) -> TensorLayout | None:
    """Return the layout of an expanded tensor in which every rank has the expanded dims whole."""
    extra = len(shape) - len(layout.shape)
    result: TensorLayout | None = layout
    for _ in range(extra):
        result = insert_dim(result, 0) if result is not None else None
    for dim, size in enumerate(shape):
        if result is not None and result.shape[dim] != size:
            if result.factors[dim]:
                return None
            result = replace_dim(result, dim, size, [Interval(0, size)] * result.ranks)
    return result


def refine(layout: TensorLayout, factors: Factors) -> TensorLayout | None:
    """Return the same layout with finer factors, such that every dim has the factors of `factors`; None if impossible.

    The refined layout is not in simplest form; it is used to move elements only.
    """
    columns: list[list[Interval]] = []
    for dim, wanted in enumerate(factors):
        have, positions = layout.factors[dim], layout.positions[dim]
        if have == wanted:
            columns += [[box.dims[at] for box in layout.boxes] for at in positions]
            continue
        single = reshape_dim(layout, dim, wanted)
        if single is None:
            return None
        columns += single
    return TensorLayout(factors, tuple(Box(tuple(column[rank] for column in columns)) for rank in range(layout.ranks)))


def reshape_dim(layout: TensorLayout, dim: int, wanted: Sequence[int]) -> list[list[Interval]] | None:
    """Return the intervals of a dim's factors after dividing the factors into `wanted`; None if that is impossible."""
    have, positions = list(layout.factors[dim]), layout.positions[dim]
    columns = [[box.dims[at] for box in layout.boxes] for at in positions]
    if not have:
        return [[Interval(0, 1)] * layout.ranks for _ in wanted] if prod(wanted) == 1 else None
    result: list[list[Interval]] = []
    at = 0
    for size in wanted:
        if size == 1:
            result.append([Interval(0, 1)] * layout.ranks)
            continue
        if at == len(have):
            return None
        if have[at] == size:
            result.append(columns[at])
            at += 1
            continue
        if have[at] % size:
            return None
        inner = have[at] // size
        if any(part.start % inner or part.stop % inner for part in columns[at]):
            return None
        result.append([Interval(part.start // inner, part.stop // inner) for part in columns[at]])
        have[at], columns[at] = inner, [[Interval(0, inner)] * layout.ranks][0]
    return result if at == len(have) else None


def list_common_factors(layouts: Iterable[TensorLayout]) -> Factors | None:
    """Return a factorisation of the dims in which all given layouts can be expressed; None if there is none."""
    result: list[tuple[int, ...]] = []
    for dims in zip(*(layout.factors for layout in layouts), strict=True):
        cuts: set[int] = set()
        size = prod(dims[0])
        for dim in dims:
            inner = 1
            for factor in reversed(dim):
                inner *= factor
                cuts.add(inner)
        ordered = sorted(cuts | {1, size})
        if any(big % small for small, big in pairwise(ordered)):
            return None
        result.append(tuple(big // small for small, big in pairwise(ordered))[::-1])
    return tuple(result)
