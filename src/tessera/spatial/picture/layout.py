"""The layout of a plan's picture: one panel per worker, with the tile to scale and its borders enlarged.

A border of one pixel around a tile of a thousand pixels would be invisible, so the scale changes at the edge of the
tile: it is uniform within the tile; outside, every interval between two box edges is wide enough for a number.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tessera.errors import TesseraError
from tessera.geometry import Box, HaloPlan, Interval
from tessera.geometry.halo import WorkerPlan

WIDTH = 960.0  # width of the picture; wider for many panels
MIN_TILE, MAX_TILE = 58.0, 190.0
MIN_BAND, MAX_BAND = 17.0, 34.0
GAP = 36.0
MAX_PER_ROW = 8


@dataclass(frozen=True, slots=True)
class AxisScale:
    """The mapping from pixels of one dim to drawing positions: linear between marks of (pixel, position).

    >>> AxisScale(((-1, 0.0), (0, 20.0), (10, 120.0))).get_position(5)
    70.0
    """

    marks: tuple[tuple[int, float], ...]

    def get_position(self, pixel: int) -> float:
        after = min(max(bisect_right(self.marks, pixel, key=lambda mark: mark[0]), 1), len(self.marks) - 1)
        (low, start), (high, end) = self.marks[after - 1], self.marks[after]
        return start + (end - start) * (pixel - low) / (high - low)

    @property
    def length(self) -> float:
        return self.marks[-1][1]

    @classmethod
    def from_edges(cls, owned: Interval, edges: set[int], tile_length: float) -> AxisScale:
        """Build a scale with a mark at every box edge. `tile_length` is the drawn length of the owned interval."""
        pixel_length = tile_length / len(owned) if len(owned) else 0.0
        ordered = sorted(edges | ({owned.start, owned.stop} if len(owned) else set()))
        marks, position = [(ordered[0], 0.0)], 0.0
        for low, high in pairwise(ordered):
            inside = owned.start <= low and high <= owned.stop
            position += (
                (high - low) * pixel_length if inside else min(MAX_BAND, max(MIN_BAND, (high - low) * pixel_length))
            )
            marks.append((high, position))
        return cls(tuple(marks))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPanel:
    """The panel of one worker in the picture; `row` and `col` are the position of its tile in the image."""

    worker: int
    row: int
    col: int
    left: float
    top: float
    rows: AxisScale
    cols: AxisScale

    def compute_rectangle(self, box: Box) -> tuple[float, float, float, float]:
        """Return left, top, width and height of the rectangle of a box."""
        height, width = box.dims[-2:]
        x, y = self.left + self.cols.get_position(width.start), self.top + self.rows.get_position(height.start)
        return (
            x,
            y,
            self.left + self.cols.get_position(width.stop) - x,
            self.top + self.rows.get_position(height.stop) - y,
        )

    @property
    def colour(self) -> int:
        """The index of the panel's colour; adjacent tiles, also diagonally, have different colours."""
        return 2 * self.row + self.col


@dataclass(frozen=True, slots=True)
class PictureLayout:
    panels: tuple[PlanPanel, ...]
    width: float
    height: float


def arrange_panels(plan: HaloPlan, top: float) -> PictureLayout:
    """Return one panel per worker, arranged like the tiles of the image; a long row or column of tiles is wrapped."""
    _check(plan)
    workers = plan.workers
    places = _find_tile_positions([worker.owned for worker in workers])
    shown = _wrap_positions(places)
    columns, lines = (max(place[axis] for place in shown) + 1 for axis in (1, 0))
    longest = [max(len(worker.owned.dims[dim]) for worker in workers) for dim in (1, 2)]
    across = min(MAX_TILE, max(MIN_TILE, (WIDTH - columns * (2 * MIN_BAND + GAP)) / columns))
    down = min(MAX_TILE, max(MIN_TILE, across * longest[0] / longest[1]))
    scales = [
        [
            AxisScale.from_edges(
                w.owned.dims[dim], _find_edges(w, dim), max(MIN_BAND, tile * len(w.owned.dims[dim]) / most)
            )
            for dim, tile, most in ((1, down, longest[0]), (2, across, longest[1]))
        ]
        for w in workers
    ]
    # Margins above and to the left of each tile, because tiles are aligned instead of panels.
    leads = [
        [_compute_lead(pair[d - 1], w.owned.dims[d]) for d in (1, 2)] for pair, w in zip(scales, workers, strict=True)
    ]
    most = [max(lead[axis] for lead in leads) for axis in (0, 1)]
    rests = [max(pair[a].length - lead[a] for pair, lead in zip(scales, leads, strict=True)) for a in (0, 1)]
    cells = [most[axis] + rests[axis] + GAP for axis in (0, 1)]
    panels = tuple(
        PlanPanel(
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
    return PictureLayout(panels, columns * cells[1], top + lines * cells[0])


def _check(plan: HaloPlan) -> None:
    if len(plan.inputs.sizes) != 3:
        raise TesseraError("only plans of images with two dims can be drawn", got=f"{len(plan.inputs.sizes) - 1} dims")
    boxes = [box for shard in plan.inputs.shards for box in shard]
    if any(len(shard) > 1 for shard in plan.inputs.shards) or len({box.dims[0] for box in boxes}) > 1:
        raise TesseraError(
            "a plan can be drawn only if every worker has at most one tile, and all tiles belong to the same images"
        )


def _find_tile_positions(owned: Sequence[Box]) -> list[tuple[int, int]]:
    """Return the row and column of every tile; workers without pixels are placed in extra rows below."""
    spans = [sorted({(b.dims[dim].start, b.dims[dim].stop) for b in owned if b}) for dim in (1, 2)]
    positions, empty = [], 0
    for box in owned:
        if box:
            row, col = (spans[d - 1].index((box.dims[d].start, box.dims[d].stop)) for d in (1, 2))
        else:
            row, col = divmod(empty, max(len(spans[1]), MAX_PER_ROW))
            row, empty = row + len(spans[0]), empty + 1
        positions.append((row, col))
    return positions


def _wrap_positions(positions: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Wrap positions if they form a single row or column that is too long; return other positions unchanged."""
    rows, cols = (max(position[axis] for position in positions) + 1 for axis in (0, 1))
    if min(rows, cols) > 1 or max(rows, cols) <= MAX_PER_ROW:
        return list(positions)
    return [divmod(row + col, MAX_PER_ROW) for row, col in positions]


def _find_edges(worker: WorkerPlan, dim: int) -> set[int]:
    target_boxes = [move.target_box for move in (*worker.receives, *worker.keeps)]
    boxes = [worker.owned, worker.need, worker.frame, *worker.pads, *target_boxes]
    edges = {edge for box in boxes if box for edge in (box.dims[dim].start, box.dims[dim].stop)}
    return edges or {0, 1}


def _compute_lead(scale: AxisScale, owned: Interval) -> float:
    return scale.get_position(owned.start) if len(owned) else 0.0
