"""Who owns which pixels of an image: grids, slices, samples, runs of sticks, all of them boxes per worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, product
from math import isqrt, prod

from tessera.geometry.box import Box, Interval
from tessera.geometry.mesh import Mesh

SLICE_METHODS = ("vertical", "horizontal", "square", "RxC")


def even_cuts(size: int, parts: int, multiple: int = 1) -> tuple[Interval, ...]:
    """Cut a length into parts as equal as can be, each a multiple of `multiple` but the last; some may be empty.

    >>> even_cuts(10, 4)
    (Interval(0:3), Interval(3:6), Interval(6:8), Interval(8:10))
    >>> even_cuts(10, 3, multiple=4)
    (Interval(0:4), Interval(4:8), Interval(8:10))
    """
    if size < 0 or parts < 1 or multiple < 1:
        raise ValueError(f"cannot cut {size} pixels into {parts} parts of multiples of {multiple}")
    units = -(-size // multiple)
    each, more = divmod(units, parts)
    found, start = [], 0
    for part in range(parts):
        stop = min(size, start + (each + (part < more)) * multiple)
        found.append(Interval(start, stop))
        start = stop
    return tuple(found)


def cuts_at(size: int, lengths: Sequence[int]) -> tuple[Interval, ...]:
    """Cut a length into parts of given lengths.

    >>> cuts_at(6, [1, 0, 5])
    (Interval(0:1), Interval(1:1), Interval(1:6))
    """
    if sum(lengths) != size or min(lengths, default=0) < 0:
        raise ValueError(f"parts of {list(lengths)} pixels do not make {size}")
    return tuple(Interval(a, b) for a, b in pairwise(accumulate(lengths, initial=0)))


def mesh_of(slice_method: str, parts: int) -> Mesh:
    """The mesh that a slice method makes of some parts.

    >>> mesh_of("vertical", 4), mesh_of("square", 4), mesh_of("2x3", 6)
    (Mesh(1x4), Mesh(2x2), Mesh(2x3))
    """
    if parts < 1:
        raise ValueError(f"an image is cut into 1 part or more, got {parts}")
    if slice_method == "vertical":
        return Mesh(1, parts)
    if slice_method == "horizontal":
        return Mesh(parts, 1)
    if slice_method == "square":
        side = isqrt(parts)
        if side * side != parts:
            raise ValueError(f"{parts} parts do not make a square; possible are {_meshes(parts)}")
        return Mesh(side, side)
    try:
        mesh = Mesh.parse(slice_method)
    except ValueError:
        raise ValueError(f"unknown slice method {slice_method!r}; allowed: {', '.join(SLICE_METHODS)}") from None
    if mesh.size != parts:
        raise ValueError(f"{slice_method} makes {mesh.size} parts, not {parts}; possible are {_meshes(parts)}")
    return mesh


def _meshes(parts: int) -> str:
    return ", ".join(f"{rows}x{parts // rows}" for rows in range(1, parts + 1) if parts % rows == 0)


@dataclass(frozen=True, slots=True)
class Partition:
    """The boxes that each worker owns of an image of these sizes, samples first.

    >>> Partition.grid((1, 4, 6), Mesh(2, 2))
    Partition(1x4x6 over 4: [0:1, 0:2, 0:3] [0:1, 0:2, 3:6] [0:1, 2:4, 0:3] [0:1, 2:4, 3:6])
    """

    sizes: tuple[int, ...]
    shards: tuple[tuple[Box, ...], ...]

    @classmethod
    def of(cls, shards: Partition | Sequence[Box | Sequence[Box]]) -> Partition:
        """From a box or boxes per worker; the image ends where they do."""
        if isinstance(shards, Partition):
            return shards
        found = tuple(tuple(b for b in ([s] if isinstance(s, Box) else s) if b) for s in shards)
        boxes = [box for shard in found for box in shard]
        if not boxes:
            raise ValueError("a partition needs a box that is not empty")
        return cls(tuple(max(b.dims[i].stop for b in boxes) for i in range(len(boxes[0].dims))), found)

    @classmethod
    def product(cls, sizes: Sequence[int], cuts: Sequence[Sequence[Interval]]) -> Partition:
        """Every part of the first dim with every part of the next, and so on; the last dim's parts vary fastest."""
        boxes = [Box(tuple(dims)) for dims in product(*cuts)]
        return cls(tuple(sizes), tuple((box,) if box else () for box in boxes))

    @classmethod
    def grid(cls, sizes: Sequence[int], mesh: Mesh, multiple: int = 1) -> Partition:
        """Rows and columns of a mesh over the image's last two dims, as even as can be.

        An image of one spatial dim is cut over all workers; of three, the first is left whole.
        """
        if len(sizes) == 2:
            return cls.product(sizes, [[Interval(0, sizes[0])], even_cuts(sizes[1], mesh.size, multiple)])
        *whole, height, width = sizes
        rows, cols = even_cuts(height, mesh.rows, multiple), even_cuts(width, mesh.cols, multiple)
        return cls.product(sizes, [*([Interval(0, size)] for size in whole), rows, cols])

    @classmethod
    def samples(cls, sizes: Sequence[int], workers: int) -> Partition:
        """Whole images, divided over the workers; with fewer images than workers some have none."""
        whole = [[Interval(0, size)] for size in sizes[1:]]
        return cls.product(sizes, [even_cuts(sizes[0], workers), *whole])

    @classmethod
    def everywhere(cls, sizes: Sequence[int], workers: int) -> Partition:
        """Every worker has everything."""
        return cls(tuple(sizes), ((Box.whole(sizes),),) * workers)

    @classmethod
    def at(cls, sizes: Sequence[int], workers: int, worker: int = 0) -> Partition:
        """One worker has everything."""
        return cls(tuple(sizes), tuple((Box.whole(sizes),) if w == worker else () for w in range(workers)))

    @classmethod
    def runs(cls, sizes: Sequence[int], lengths: Sequence[int]) -> Partition:
        """Consecutive sticks in the order of the flattened image, so many for each worker.

        >>> Partition.runs((1, 4, 6), [8, 8, 8]).shards[0]
        (Box(0:1, 0:1, 0:6), Box(0:1, 1:2, 0:2))
        """
        cuts = cuts_at(prod(sizes), lengths)
        return cls(tuple(sizes), tuple(tuple(run_boxes(sizes, cut)) for cut in cuts))

    @property
    def workers(self) -> int:
        return len(self.shards)

    def hull(self, worker: int) -> Box:
        """The smallest box around a worker's pixels; of a tile, the tile."""
        found = Box(tuple(Interval(0, 0) for _ in self.sizes))
        for box in self.shards[worker]:
            found = found.hull(box)
        return found

    def __repr__(self) -> str:
        shards = (" + ".join(repr(b)[4:-1] for b in shard) for shard in self.shards)
        listed = " ".join(f"[{shard}]" for shard in shards)
        return f"Partition({'x'.join(map(str, self.sizes))} over {self.workers}: {listed})"


def run_boxes(sizes: Sequence[int], run: Interval) -> list[Box]:
    """Consecutive sticks as boxes: the rest of a row, whole rows, whole images, the beginning of a row.

    >>> run_boxes((2, 2, 3), Interval(1, 9))
    [Box(0:1, 0:1, 1:3), Box(0:1, 1:2, 0:3), Box(1:2, 0:1, 0:3)]
    """
    if not len(run):
        return []
    if len(sizes) == 1:
        return [Box((run,))]
    inner = prod(sizes[1:])
    first, last = run.start // inner, (run.stop - 1) // inner
    found: list[Box] = []
    whole = Interval(first + (run.start % inner > 0), last + (run.stop % inner == 0))
    if first < whole.start or first >= whole.stop:  # the outermost index where the run begins is not whole
        part = Interval(run.start - first * inner, min(run.stop - first * inner, inner))
        found += [Box((Interval(first, first + 1), *box.dims)) for box in run_boxes(sizes[1:], part)]
    if len(whole):
        found.append(Box((whole, *(Interval(0, size) for size in sizes[1:]))))
    if last > first and last >= whole.stop:
        part = Interval(0, run.stop - last * inner)
        found += [Box((Interval(last, last + 1), *box.dims)) for box in run_boxes(sizes[1:], part)]
    return found
