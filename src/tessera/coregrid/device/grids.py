"""Sets of cores: rectangles of a grid and unions of them, in the order in which shards are dealt."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tessera.errors import TesseraError
from tessera.geometry import Mesh


@dataclass(frozen=True, slots=True, order=True)
class CoreCoord:
    """A core by its column `x` and its row `y`."""

    x: int
    y: int


@dataclass(frozen=True, slots=True)
class CoreRange:
    """The cores from one corner to the other, both included.

    >>> CoreRange(CoreCoord(0, 0), CoreCoord(3, 1)).size
    8
    """

    start: CoreCoord
    end: CoreCoord

    def __post_init__(self) -> None:
        if self.start.x > self.end.x or self.start.y > self.end.y or min(self.start.x, self.start.y) < 0:
            raise TesseraError("a range of cores goes from its top left to its bottom right", got=self)

    @property
    def rows(self) -> int:
        return self.end.y - self.start.y + 1

    @property
    def columns(self) -> int:
        return self.end.x - self.start.x + 1

    @property
    def size(self) -> int:
        return self.rows * self.columns

    def cores(self, *, by_rows: bool = True) -> list[CoreCoord]:
        """Its cores row after row, or column after column."""
        across, down = range(self.start.x, self.end.x + 1), range(self.start.y, self.end.y + 1)
        if by_rows:
            return [CoreCoord(x, y) for y in down for x in across]
        return [CoreCoord(x, y) for x in across for y in down]


@dataclass(frozen=True, slots=True, init=False)
class CoreRangeSet:
    """Several ranges of cores that do not overlap."""

    ranges: tuple[CoreRange, ...]

    def __init__(self, ranges: Iterable[CoreRange]) -> None:
        found = tuple(sorted(ranges, key=lambda part: (part.start.y, part.start.x)))
        if not found:
            raise TesseraError("a set of cores is not empty")
        cores = [core for part in found for core in part.cores()]
        if len(set(cores)) < len(cores):
            raise TesseraError("ranges of cores overlap", got=found)
        object.__setattr__(self, "ranges", found)

    @classmethod
    def first(cls, count: int, grid: Mesh) -> CoreRangeSet:
        """So many cores of a grid, row after row.

        >>> CoreRangeSet.first(10, Mesh(8, 8)).size
        10
        """
        full, rest = divmod(count, grid.cols)
        if count > grid.size or count < 1:
            raise TesseraError("a shard grid lies on the device", got=count, allowed=f"1 to {grid.size} cores")
        parts = [CoreRange(CoreCoord(0, 0), CoreCoord(grid.cols - 1, full - 1))] if full else []
        if rest:
            parts.append(CoreRange(CoreCoord(0, full), CoreCoord(rest - 1, full)))
        return cls(parts)

    @classmethod
    def rectangle(cls, rows: int, columns: int) -> CoreRangeSet:
        """Rows and columns of cores from the top left of a grid."""
        return cls([CoreRange(CoreCoord(0, 0), CoreCoord(columns - 1, rows - 1))])

    @property
    def size(self) -> int:
        return sum(part.size for part in self.ranges)

    @property
    def bounds(self) -> CoreRange:
        """The smallest rectangle around them."""
        return CoreRange(
            CoreCoord(min(r.start.x for r in self.ranges), min(r.start.y for r in self.ranges)),
            CoreCoord(max(r.end.x for r in self.ranges), max(r.end.y for r in self.ranges)),
        )

    def as_mesh(self) -> Mesh:
        """The cores as a grid, if they are a rectangle from the top left.

        >>> CoreRangeSet.rectangle(2, 3).as_mesh()
        Mesh(2x3)
        """
        bounds = self.bounds
        if bounds.size != self.size or bounds.start != CoreCoord(0, 0):
            raise TesseraError(
                "a core grid is a rectangle from the top left", got=self.ranges, do="use CoreGrid(y=, x=)"
            )
        return Mesh(bounds.rows, bounds.columns)

    def numbers(self, grid: Mesh, *, by_rows: bool = True) -> tuple[int, ...]:
        """The cores' numbers on a grid, row after row over all ranges, or column after column.

        >>> CoreRangeSet.rectangle(2, 2).numbers(Mesh(4, 4))
        (0, 1, 4, 5)
        """
        edge = self.bounds.end
        if edge.x >= grid.cols or edge.y >= grid.rows:
            raise TesseraError(
                "a shard grid lies on the device",
                got=f"{edge.y + 1}x{edge.x + 1} cores",
                allowed=f"at most {grid.rows}x{grid.cols}",
            )
        cores = [core for part in self.ranges for core in part.cores()]
        cores.sort(key=(lambda core: (core.y, core.x)) if by_rows else (lambda core: (core.x, core.y)))
        return tuple(grid.worker(core.y, core.x) for core in cores)


def CoreGrid(*, y: int, x: int) -> CoreRangeSet:
    """`y` rows of `x` cores from the top left."""
    return CoreRangeSet.rectangle(y, x)
