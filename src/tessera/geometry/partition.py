"""Partitions of an image over workers, as lists of boxes per worker: by grid, by samples, or by runs of pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, product
from math import isqrt, prod

from tessera.geometry.box import Box, Interval, format_sizes
from tessera.geometry.mesh import Mesh

SLICE_METHODS = ("vertical", "horizontal", "square", "RxC", "DxRxC")


def split_evenly(size: int, parts: int, multiple: int = 1) -> tuple[Interval, ...]:
    """Split a length into `parts` intervals, as equal as possible in units of `multiple` pixels; some may be empty.

    >>> split_evenly(10, 4)
    (Interval(0:3), Interval(3:6), Interval(6:8), Interval(8:10))
    >>> split_evenly(10, 3, multiple=4)
    (Interval(0:4), Interval(4:8), Interval(8:10))
    """
    if size < 0 or parts < 1 or multiple < 1:
        raise ValueError(f"cannot split {size} pixels into {parts} parts of multiples of {multiple}")
    units = -(-size // multiple)
    units_per_part, remainder = divmod(units, parts)
    intervals, start = [], 0
    for part in range(parts):
        stop = min(size, start + (units_per_part + (part < remainder)) * multiple)
        intervals.append(Interval(start, stop))
        start = stop
    return tuple(intervals)


def split_by_lengths(size: int, lengths: Sequence[int]) -> tuple[Interval, ...]:
    """Split `size` into intervals with these lengths, whose sum must be `size`.

    >>> split_by_lengths(6, [1, 0, 5])
    (Interval(0:1), Interval(1:1), Interval(1:6))
    """
    if sum(lengths) != size or min(lengths, default=0) < 0:
        raise ValueError(f"parts of {list(lengths)} pixels do not add up to {size}")
    return tuple(Interval(a, b) for a, b in pairwise(accumulate(lengths, initial=0)))


def build_mesh(slice_method: str, parts: int) -> Mesh:
    """Return the mesh of a slice method for an image of two dims, see `count_parts`.

    >>> build_mesh("vertical", 4), build_mesh("square", 4), build_mesh("2x3", 6)
    (Mesh(1x4), Mesh(2x2), Mesh(2x3))
    """
    rows, cols = count_parts(slice_method, parts, dims=2)
    return Mesh(rows, cols)


def count_parts(slice_method: str, parts: int, *, dims: int) -> tuple[int, ...]:
    """Return the number of parts of each dim of an image.

    `vertical` splits the width, `horizontal` the height, and `square` both into parts as equal as possible. Otherwise a
    slice method has the parts of the last dims, such as "2x3", or "2x1x2" for a volume.

    >>> count_parts("square", 6, dims=2), count_parts("2x1x2", 4, dims=3), count_parts("4", 4, dims=2)
    ((2, 3), (2, 1, 2), (1, 4))
    """
    if parts < 1:
        raise ValueError(f"an image is split into 1 part or more, got {parts}")
    if slice_method in ("vertical", "horizontal", "square"):
        highest = {"vertical": 1, "horizontal": parts, "square": isqrt(parts)}[slice_method]
        rows = next(rows for rows in range(highest, 0, -1) if parts % rows == 0)
        return (*(1,) * (dims - 2), rows, parts // rows)
    words = slice_method.lower().split("x")
    if not all(word.strip().isdecimal() and int(word) for word in words):
        raise ValueError(f"unknown slice method {slice_method!r}; allowed: {', '.join(SLICE_METHODS)}")
    counts = tuple(int(word) for word in words)
    if len(counts) > dims:
        raise ValueError(f"{slice_method} splits {len(counts)} dims, but the image has {dims}")
    if prod(counts) != parts:
        raise ValueError(f"{slice_method} makes {prod(counts)} parts, not {parts}; allowed: {_list_meshes(parts)}")
    return (*(1,) * (dims - len(counts)), *counts)


def _list_meshes(parts: int) -> str:
    return ", ".join(f"{rows}x{parts // rows}" for rows in range(1, parts + 1) if parts % rows == 0)


@dataclass(frozen=True, slots=True)
class Partition:
    """The boxes that each worker owns of an image with these sizes, samples first.

    >>> Partition.split_by_grid((1, 4, 6), Mesh(2, 2))
    Partition(1x4x6 over 4: [0:1, 0:2, 0:3] [0:1, 0:2, 3:6] [0:1, 2:4, 0:3] [0:1, 2:4, 3:6])
    """

    sizes: tuple[int, ...]
    shards: tuple[tuple[Box, ...], ...]

    @classmethod
    def of(cls, shards: Partition | Sequence[Box | Sequence[Box]]) -> Partition:
        """Build a partition from a box or boxes per worker; the image ends at the last owned pixel."""
        if isinstance(shards, Partition):
            return shards
        shard_boxes = tuple(tuple(b for b in ([s] if isinstance(s, Box) else s) if b) for s in shards)
        boxes = [box for shard in shard_boxes for box in shard]
        if not boxes:
            raise ValueError("a partition needs a box that is not empty")
        return cls(tuple(max(b.dims[i].stop for b in boxes) for i in range(len(boxes[0].dims))), shard_boxes)

    @classmethod
    def from_intervals(cls, sizes: Sequence[int], intervals: Sequence[Sequence[Interval]]) -> Partition:
        """Combine the intervals of all dims into one box per worker; the intervals of the last dim vary fastest."""
        boxes = [Box(tuple(dims)) for dims in product(*intervals)]
        return cls(tuple(sizes), tuple((box,) if box else () for box in boxes))

    @classmethod
    def split_by_grid(cls, sizes: Sequence[int], mesh: Mesh | Sequence[int], multiple: int = 1) -> Partition:
        """Split an activation of `sizes` evenly.

        Height and width are split over the rows and columns of a `Mesh`. A tuple is the number of parts of each of the
        last dims. With a `Mesh`, an image with one spatial dim is split over all workers, and the depth of a volume is
        not split. Dims are split in units of `multiple` pixels.

        >>> Partition.split_by_grid((1, 4, 2, 6), (2, 1, 2)).shards[1]
        (Box(0:1, 0:2, 0:2, 3:6),)
        """
        if not isinstance(mesh, Mesh):
            spatial = list(zip(sizes[-len(mesh) :], mesh, strict=True))
            whole_dims = [[Interval(0, size)] for size in sizes[: -len(mesh)]]
            return cls.from_intervals(sizes, [*whole_dims, *(split_evenly(*pair, multiple) for pair in spatial)])
        if len(sizes) == 2:
            return cls.from_intervals(sizes, [[Interval(0, sizes[0])], split_evenly(sizes[1], mesh.size, multiple)])
        *whole, height, width = sizes
        rows, cols = split_evenly(height, mesh.rows, multiple), split_evenly(width, mesh.cols, multiple)
        return cls.from_intervals(sizes, [*([Interval(0, size)] for size in whole), rows, cols])

    @classmethod
    def replicate(cls, sizes: Sequence[int], workers: int) -> Partition:
        """Give every worker the whole image."""
        return cls(tuple(sizes), ((Box.from_sizes(sizes),),) * workers)

    @classmethod
    def split_runs(cls, sizes: Sequence[int], lengths: Sequence[int]) -> Partition:
        """Divide the flattened image into consecutive runs of pixels, one length per worker.

        >>> Partition.split_runs((1, 4, 6), [8, 8, 8]).shards[0]
        (Box(0:1, 0:1, 0:6), Box(0:1, 1:2, 0:2))
        """
        runs = split_by_lengths(prod(sizes), lengths)
        return cls(tuple(sizes), tuple(tuple(split_run_into_boxes(sizes, run)) for run in runs))

    @property
    def workers(self) -> int:
        return len(self.shards)

    def get_box(self, worker: int) -> Box:
        """Return the smallest box that contains a worker's pixels."""
        hull = Box(tuple(Interval(0, 0) for _ in self.sizes))
        for box in self.shards[worker]:
            hull = hull.hull(box)
        return hull

    def __repr__(self) -> str:
        shards = (" + ".join(repr(b)[4:-1] for b in shard) for shard in self.shards)
        listed = " ".join(f"[{shard}]" for shard in shards)
        return f"Partition({format_sizes(self.sizes)} over {self.workers}: {listed})"


def split_run_into_boxes(sizes: Sequence[int], run: Interval) -> list[Box]:
    """Split a run of consecutive pixels into boxes: the end of a row, whole rows, whole images, the start of a row.

    >>> split_run_into_boxes((2, 2, 3), Interval(1, 9))
    [Box(0:1, 0:1, 1:3), Box(0:1, 1:2, 0:3), Box(1:2, 0:1, 0:3)]
    """
    if not len(run):
        return []
    if len(sizes) == 1:
        return [Box((run,))]
    inner = prod(sizes[1:])
    first, last = run.start // inner, (run.stop - 1) // inner
    boxes: list[Box] = []
    whole = Interval(first + (run.start % inner > 0), last + (run.stop % inner == 0))
    if first < whole.start or first >= whole.stop:  # the run starts within the outermost index `first`
        part = Interval(run.start - first * inner, min(run.stop - first * inner, inner))
        boxes += [Box((Interval(first, first + 1), *box.dims)) for box in split_run_into_boxes(sizes[1:], part)]
    if len(whole):
        boxes.append(Box((whole, *(Interval(0, size) for size in sizes[1:]))))
    if last > first and last >= whole.stop:
        part = Interval(0, run.stop - last * inner)
        boxes += [Box((Interval(last, last + 1), *box.dims)) for box in split_run_into_boxes(sizes[1:], part)]
    return boxes
