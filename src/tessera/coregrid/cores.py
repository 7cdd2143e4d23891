"""Sets of cores: rectangles of a grid and unions of rectangles, in shard order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tessera.errors import TesseraError
from tessera.geometry import Mesh


@dataclass(frozen=True, slots=True, order=True)
class CoreCoord:
    """A core by its column `x` and row `y`."""

    x: int
    y: int


@dataclass(frozen=True, slots=True)
class CoreRange:
    """The rectangle of cores between two corners, both included.

    >>> CoreRange(CoreCoord(0, 0), CoreCoord(3, 1)).size
    8
    """

    start: CoreCoord
    end: CoreCoord

    def __post_init__(self) -> None:
        if min(self.start.x, self.start.y) < 0:
            raise TesseraError("invalid coordinates of a core", got=self.start, allowed="0 or more")
        if self.start.x > self.end.x or self.start.y > self.end.y:
            raise TesseraError("the start of a core range is to the right of or below its end", got=self)

    @property
    def rows(self) -> int:
        return self.end.y - self.start.y + 1

    @property
    def columns(self) -> int:
        return self.end.x - self.start.x + 1

    @property
    def size(self) -> int:
        return self.rows * self.columns

    def grid_size(self) -> CoreCoord:
        """Return the number of columns (x) and rows (y)."""
        return CoreCoord(self.columns, self.rows)

    def list_cores(self) -> list[CoreCoord]:
        """Return the cores of the rectangle, row by row."""
        across, down = range(self.start.x, self.end.x + 1), range(self.start.y, self.end.y + 1)
        return [CoreCoord(x, y) for y in down for x in across]


class CoreCount(int):
    """A number of cores that may also be called."""

    def __call__(self) -> int:
        return int(self)


@dataclass(frozen=True, slots=True, init=False)
class CoreRangeSet:
    """A set of cores: the union of several disjoint rectangles."""

    ranges: tuple[CoreRange, ...]

    def __init__(self, ranges: Iterable[CoreRange]) -> None:
        ordered = tuple(sorted(ranges, key=lambda part: (part.start.y, part.start.x)))
        if not ordered:
            raise TesseraError("a core range set must not be empty", do="pass at least one CoreRange")
        cores = [core for part in ordered for core in part.list_cores()]
        if len(set(cores)) < len(cores):
            raise TesseraError("core ranges must not overlap", got=ordered)
        object.__setattr__(self, "ranges", ordered)

    @classmethod
    def of_first(cls, count: int, grid: Mesh) -> CoreRangeSet:
        """Return the first `count` cores of a grid, row by row.

        >>> CoreRangeSet.of_first(10, Mesh(8, 8)).size
        10
        """
        full, rest = divmod(count, grid.cols)
        if count > grid.size or count < 1:
            raise TesseraError(
                "the number of cores does not fit the device", got=count, allowed=f"1 to {grid.size} cores"
            )
        parts = [CoreRange(CoreCoord(0, 0), CoreCoord(grid.cols - 1, full - 1))] if full else []
        if rest:
            parts.append(CoreRange(CoreCoord(0, full), CoreCoord(rest - 1, full)))
        return cls(parts)

    @classmethod
    def of_rectangle(cls, rows: int, columns: int) -> CoreRangeSet:
        """Return `rows` x `columns` cores at the top left of a grid."""
        return cls([CoreRange(CoreCoord(0, 0), CoreCoord(columns - 1, rows - 1))])

    @property
    def size(self) -> int:
        return sum(part.size for part in self.ranges)

    @property
    def x(self) -> int:
        """Number of columns of the bounding rectangle."""
        return self.bounds.columns

    @property
    def y(self) -> int:
        """Number of rows of the bounding rectangle."""
        return self.bounds.rows

    @property
    def num_cores(self) -> CoreCount:
        """Number of cores, as a number and as a call: ttnn has it as an attribute of grids and a method of sets."""
        return CoreCount(self.size)

    def bounding_box(self) -> CoreRange:
        """Return the bounding rectangle."""
        return self.bounds

    def contains(self, other: CoreRangeSet) -> bool:
        """Return whether all cores of another set are in this set."""
        mine = {core for part in self.ranges for core in part.list_cores()}
        return all(core in mine for part in other.ranges for core in part.list_cores())

    @property
    def bounds(self) -> CoreRange:
        """The bounding rectangle of all cores in the set."""
        return CoreRange(
            CoreCoord(min(r.start.x for r in self.ranges), min(r.start.y for r in self.ranges)),
            CoreCoord(max(r.end.x for r in self.ranges), max(r.end.y for r in self.ranges)),
        )

    @property
    def is_mesh(self) -> bool:
        """Whether the cores are one rectangle that begins at core (0, 0)."""
        bounds = self.bounds
        return bounds.size == self.size and bounds.start == CoreCoord(0, 0)

    def to_mesh(self) -> Mesh:
        """Return the set as a mesh. The cores must form a rectangle at the top left of the grid.

        >>> CoreRangeSet.of_rectangle(2, 3).to_mesh()
        Mesh(2x3)
        """
        bounds = self.bounds
        if not self.is_mesh:
            raise TesseraError(
                "a core grid must be one rectangle that starts at core (0, 0)",
                got=self.ranges,
                do="use CoreGrid(y=, x=)",
            )
        return Mesh(bounds.rows, bounds.columns)

    def list_core_numbers(self, grid: Mesh, *, by_rows: bool = True) -> tuple[int, ...]:
        """Return the numbers of the cores on a grid, ordered row by row or (`by_rows=False`) column by column.

        >>> CoreRangeSet.of_rectangle(2, 2).list_core_numbers(Mesh(4, 4))
        (0, 1, 4, 5)
        """
        edge = self.bounds.end
        if edge.x >= grid.cols or edge.y >= grid.rows:
            raise TesseraError(
                "the shard grid exceeds the device",
                got=f"{edge.y + 1}x{edge.x + 1} cores",
                allowed=f"at most {grid.rows}x{grid.cols}",
            )
        cores = [core for part in self.ranges for core in part.list_cores()]
        cores.sort(key=(lambda core: (core.y, core.x)) if by_rows else (lambda core: (core.x, core.y)))
        return tuple(grid.get_worker(core.y, core.x) for core in cores)


def CoreGrid(*, y: int, x: int) -> CoreRangeSet:
    """Return `y` rows of `x` cores at the top left of a grid."""
    return CoreRangeSet.of_rectangle(y, x)
