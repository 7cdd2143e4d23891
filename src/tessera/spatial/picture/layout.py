"""Where the boxes of a plan lie in its picture: a panel per worker, the tile to scale, its borders wide enough to see.

A border of one pixel around a tile of a thousand would be invisible, so the scale changes where the tile ends: within
the tile it is even, and outside every stretch between two edges is drawn at least as wide as a number needs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tessera.errors import TesseraError
from tessera.geometry import Box, HaloPlan, Interval
from tessera.geometry.halo import WorkerPlan

WIDTH = 960.0  # of the whole, unless many panels need more
LEAST_TILE, MOST_TILE = 58.0, 190.0
LEAST_BAND, MOST_BAND = 17.0, 34.0
GAP = 36.0
MOST_IN_A_ROW = 8


@dataclass(frozen=True, slots=True)
class Scale:
    """Where the pixels of one dim are drawn: even between marks of (pixel, place).

    >>> Scale(((-1, 0.0), (0, 20.0), (10, 120.0))).at(5)
    70.0
    """

    marks: tuple[tuple[int, float], ...]

    def at(self, pixel: int) -> float:
        after = min(max(bisect_right(self.marks, pixel, key=lambda mark: mark[0]), 1), len(self.marks) - 1)
        (low, start), (high, end) = self.marks[after - 1], self.marks[after]
        return start + (end - start) * (pixel - low) / (high - low)

    @property
    def length(self) -> float:
        return self.marks[-1][1]

    @classmethod
    def of(cls, owned: Interval, edges: set[int], tile: float) -> Scale:
        """From the edges of all that is drawn; what is owned is `tile` long in all."""
        each = tile / len(owned) if len(owned) else 0.0
        ordered = sorted(edges | ({owned.start, owned.stop} if len(owned) else set()))
        marks, place = [(ordered[0], 0.0)], 0.0
        for low, high in pairwise(ordered):
            inside = owned.start <= low and high <= owned.stop
            place += (high - low) * each if inside else min(MOST_BAND, max(LEAST_BAND, (high - low) * each))
            marks.append((high, place))
        return cls(tuple(marks))


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One worker's place in the picture; `row` and `col` count tiles of the image, and choose its colour."""

    worker: int
    row: int
    col: int
    left: float
    top: float
    rows: Scale
    cols: Scale

    def place(self, box: Box) -> tuple[float, float, float, float]:
        """Left, top, width and height of a box of pixels."""
        height, width = box.dims[-2:]
        x, y = self.left + self.cols.at(width.start), self.top + self.rows.at(height.start)
        return x, y, self.left + self.cols.at(width.stop) - x, self.top + self.rows.at(height.stop) - y

    @property
    def colour(self) -> int:
        """Tiles that touch, even at a corner, differ in colour."""
        return 2 * self.row + self.col


@dataclass(frozen=True, slots=True)
class Layout:
    panels: tuple[Panel, ...]
    width: float
    height: float


def lay_out(plan: HaloPlan, top: float) -> Layout:
    """Panels in the order of the tiles of the image; a long line of tiles is broken into several."""
    _check(plan)
    workers = plan.workers
    places = _places([worker.owned for worker in workers])
    shown = _in_lines(places)
    columns, lines = (max(place[axis] for place in shown) + 1 for axis in (1, 0))
    longest = [max(len(worker.owned.dims[dim]) for worker in workers) for dim in (1, 2)]
    across = min(MOST_TILE, max(LEAST_TILE, (WIDTH - columns * (2 * LEAST_BAND + GAP)) / columns))
    down = min(MOST_TILE, max(LEAST_TILE, across * longest[0] / longest[1]))
    scales = [
        [
            Scale.of(w.owned.dims[dim], _edges(w, dim), max(LEAST_BAND, tile * len(w.owned.dims[dim]) / most))
            for dim, tile, most in ((1, down, longest[0]), (2, across, longest[1]))
        ]
        for w in workers
    ]
    # How far each panel reaches above its tile and to the left: tiles stand in line, not panels.
    leads = [[_lead(pair[d - 1], w.owned.dims[d]) for d in (1, 2)] for pair, w in zip(scales, workers, strict=True)]
    most = [max(lead[axis] for lead in leads) for axis in (0, 1)]
    rests = [max(pair[a].length - lead[a] for pair, lead in zip(scales, leads, strict=True)) for a in (0, 1)]
    cells = [most[axis] + rests[axis] + GAP for axis in (0, 1)]
    panels = tuple(
        Panel(
            worker=worker,
            row=places[worker][0],
            col=places[worker][1],
            left=GAP / 2 + shown[worker][1] * cells[1] + most[1] - leads[worker][1],
            top=top + shown[worker][0] * cells[0] + most[0] - leads[worker][0],
            rows=rows,
            cols=cols,
        )
        for worker, (rows, cols) in enumerate(scales)
    )
    return Layout(panels, columns * cells[1], top + lines * cells[0])


def _check(plan: HaloPlan) -> None:
    if len(plan.inputs.sizes) != 3:
        raise TesseraError("a picture shows images of two dims", got=f"{len(plan.inputs.sizes) - 1} dims")
    boxes = [box for shard in plan.inputs.shards for box in shard]
    if any(len(shard) > 1 for shard in plan.inputs.shards) or len({box.dims[0] for box in boxes}) > 1:
        raise TesseraError("a picture shows plans whose workers have one tile each, of the same images")


def _places(owned: Sequence[Box]) -> list[tuple[int, int]]:
    """The row and column of every tile; workers without pixels stand in rows of their own below."""
    spans = [sorted({(b.dims[dim].start, b.dims[dim].stop) for b in owned if b}) for dim in (1, 2)]
    found, empty = [], 0
    for box in owned:
        if box:
            row, col = (spans[d - 1].index((box.dims[d].start, box.dims[d].stop)) for d in (1, 2))
        else:
            row, col = divmod(empty, max(len(spans[1]), MOST_IN_A_ROW))
            row, empty = row + len(spans[0]), empty + 1
        found.append((row, col))
    return found


def _in_lines(places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same places, unless all are in one row or column that is too long."""
    rows, cols = (max(place[axis] for place in places) + 1 for axis in (0, 1))
    if min(rows, cols) > 1 or max(rows, cols) <= MOST_IN_A_ROW:
        return list(places)
    return [divmod(row + col, MOST_IN_A_ROW) for row, col in places]


def _edges(worker: WorkerPlan, dim: int) -> set[int]:
    moved = [move.placed for move in (*worker.receives, *worker.keeps)]
    boxes = [worker.owned, worker.need, worker.frame, *worker.pads, *moved]
    found = {edge for box in boxes if box for edge in (box.dims[dim].start, box.dims[dim].stop)}
    return found or {0, 1}


def _lead(scale: Scale, owned: Interval) -> float:
    return scale.at(owned.start) if len(owned) else 0.0
