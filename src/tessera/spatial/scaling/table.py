"""A scaling as tables: what was predicted for every number of ranks, and what was measured beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tessera.report.blocks import Cell
from tessera.report.figures import format_bytes, format_percent, format_seconds
from tessera.report.tables import Column
from tessera.spatial.scaling.points import Point, efficiencies

Titled = tuple[str, Sequence[Column], list[list[Cell]]]  # a table under its title


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A step that was run on this host, and its prediction for the same ranks on the same cores."""

    predicted: Point
    seconds: float
    memory: int

    @property
    def error(self) -> float:
        """How far off the prediction is, as a share of what was measured."""
        return self.predicted.seconds / self.seconds - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """All that was predicted and measured, and what of."""

    step: str
    strong: Sequence[Point]
    weak: Sequence[Point]
    measured: Sequence[Measured] = ()

    @property
    def tables(self) -> list[Titled]:
        """Each with its title, its columns and its rows."""
        image, tile = self.strong[0].plane, self.weak[0].tile
        found: list[Titled] = [
            (f"strong scaling: {_times(image)} image, {self.step}", POINTS, point_rows(self.strong)),
            (f"weak scaling: {_times(tile)} tile for every rank, {self.step}", POINTS, point_rows(self.weak)),
        ]
        if self.measured:
            small = self.measured[0].predicted.plane
            title = f"measured here: {_times(small)} image, {self.step}"
            found.append((title, MEASURED, measured_rows(self.measured)))
        return found


POINTS = (
    Column("ranks", "right"),
    Column("mesh"),
    Column("tile", "right"),
    Column("compute", "right"),
    Column("exchange", "right"),
    Column("hidden", "right"),
    Column("statistics", "right"),
    Column("weights", "right"),
    Column("step", "right"),
    Column("efficiency", "right"),
    Column("memory", "right"),
    Column("fits"),
)
MEASURED = (
    Column("ranks", "right"),
    Column("mesh"),
    Column("predicted", "right"),
    Column("measured", "right"),
    Column("error", "right"),
    Column("error of the scaling", "right"),
    Column("memory predicted", "right"),
    Column("memory measured", "right"),
)


def point_rows(points: Sequence[Point]) -> list[list[Cell]]:
    """A row for every number of ranks."""
    return [
        [
            Cell(f"{p.ranks:,}", p.ranks),
            Cell(f"{p.mesh.rows}x{p.mesh.cols}"),
            Cell(_times(p.tile), p.tile[0] * p.tile[1]),
            *(_seconds(t) for t in (p.compute, p.exchange, p.hidden, p.statistics, p.weights, p.seconds)),
            Cell(format_percent(efficiency), efficiency),
            Cell(format_bytes(p.memory), p.memory),
            Cell("yes") if p.fits else Cell(f"no: a rank has {format_bytes(p.room)}", tone="bad"),
        ]
        for p, efficiency in zip(points, efficiencies(points), strict=True)
    ]


def measured_rows(measured: Sequence[Measured]) -> list[list[Cell]]:
    """A row for every number of ranks that was run."""
    return [
        [
            Cell(f"{m.predicted.ranks}", m.predicted.ranks),
            Cell(f"{m.predicted.mesh.rows}x{m.predicted.mesh.cols}"),
            _seconds(m.predicted.seconds),
            _seconds(m.seconds),
            Cell(format_percent(m.error, signed=True), m.error),
            Cell(format_percent(of_scaling, signed=True), of_scaling),
            Cell(format_bytes(m.predicted.memory), m.predicted.memory),
            Cell(format_bytes(m.memory), m.memory),
        ]
        for m, of_scaling in zip(measured, scaling_errors(measured), strict=True)
    ]


def scaling_errors(measured: Sequence[Measured]) -> list[float]:
    """The errors once the first row fits: of how the time changes with the ranks, not of the machine's rates."""
    return [(1 + m.error) / (1 + measured[0].error) - 1 for m in measured]


def plain(scaling: Scaling) -> dict[str, Any]:
    """Everything as plain values, seconds and bytes."""
    measured = [
        {
            "ranks": m.predicted.ranks,
            "image": list(m.predicted.plane),
            "predicted": m.predicted.seconds,
            "measured": m.seconds,
            "error": m.error,
            "error_of_scaling": of_scaling,
            "memory_predicted": m.predicted.memory,
            "memory_measured": m.memory,
        }
        for m, of_scaling in zip(scaling.measured, scaling_errors(scaling.measured), strict=True)
    ]
    return {
        "step": scaling.step,
        "strong": _plain_points(scaling.strong),
        "weak": _plain_points(scaling.weak),
        "measured": measured,
    }


def _plain_points(points: Sequence[Point]) -> list[dict[str, Any]]:
    return [
        {
            "ranks": p.ranks,
            "mesh": [p.mesh.rows, p.mesh.cols],
            "image": list(p.plane),
            "tile": list(p.tile),
            "compute": p.compute,
            "exchange": p.exchange,
            "hidden": p.hidden,
            "statistics": p.statistics,
            "weights": p.weights,
            "step": p.seconds,
            "efficiency": efficiency,
            "memory": p.memory,
            "room": p.room,
        }
        for p, efficiency in zip(points, efficiencies(points), strict=True)
    ]


def _seconds(seconds: float) -> Cell:
    return Cell(format_seconds(seconds), seconds)


def _times(sizes: tuple[int, int]) -> str:
    return f"{sizes[0]}x{sizes[1]}"
