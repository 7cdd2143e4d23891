"""The tables of a scaling study: predictions for every number of ranks, and measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tessera.report.blocks import Cell, Column
from tessera.report.figures import format_bytes, format_change, format_percent, format_seconds
from tessera.spatial.scaling.prediction import ScalingPoint, StepTimes, compute_efficiencies, format_size

Titled = tuple[str, Sequence[Column], list[list[Cell]]]  # title, columns, rows


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """A measured step on this host, and its prediction for the same number of ranks and cores."""

    predicted: ScalingPoint
    seconds: float
    memory: int

    @property
    def error(self) -> float:
        """The error of the prediction, relative to the measurement."""
        return self.predicted.seconds / self.seconds - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingResult:
    """The result of a scaling study: predictions and measurements of a step."""

    step: str
    strong: Sequence[ScalingPoint]
    weak: Sequence[ScalingPoint]
    measured: Sequence[MeasuredStep] = ()

    @property
    def tables(self) -> list[Titled]:
        """The tables, each with its title, columns and rows."""
        image, tile = self.strong[0].image, self.weak[0].tile
        tables: list[Titled] = [
            (f"strong scaling: {format_size(image)} image, {self.step}", POINTS, build_point_rows(self.strong)),
            (
                f"weak scaling: {format_size(tile)} tile for every rank, {self.step}",
                POINTS,
                build_point_rows(self.weak),
            ),
        ]
        if self.measured:
            small = self.measured[0].predicted.image
            title = f"measured here: {format_size(small)} image, {self.step}"
            tables.append((title, MEASURED, build_measured_rows(self.measured)))
        return tables


POINTS = (
    Column("ranks", "number"),
    Column("mesh"),
    Column("tile", "number"),
    *(Column(name, "number") for name, _ in StepTimes().list_parts()),
    Column("step", "number"),
    Column("efficiency", "number"),
    Column("memory", "number"),
    Column("fits"),
)
MEASURED = (
    Column("ranks", "number"),
    Column("mesh"),
    Column("predicted", "number"),
    Column("measured", "number"),
    Column("error", "number"),
    Column("error of the scaling", "number"),
    Column("memory predicted", "number"),
    Column("memory measured", "number"),
)


def build_point_rows(points: Sequence[ScalingPoint]) -> list[list[Cell]]:
    """Return a row for every number of ranks."""
    return [
        [
            Cell(f"{p.ranks:,}", p.ranks),
            Cell(format_size(p.mesh)),
            Cell(format_size(p.tile), prod(p.tile)),
            *(_make_time_cell(seconds) for _, seconds in p.times.list_parts()),
            _make_time_cell(p.seconds),
            Cell(format_percent(efficiency), efficiency),
            Cell(format_bytes(p.memory), p.memory),
            Cell("yes") if p.fits else Cell(f"no: a rank has {format_bytes(p.available_memory)}", tone="bad"),
        ]
        for p, efficiency in zip(points, compute_efficiencies(points), strict=True)
    ]


def build_measured_rows(measured: Sequence[MeasuredStep]) -> list[list[Cell]]:
    """Return a row for every measured number of ranks."""
    return [
        [
            Cell(f"{m.predicted.ranks}", m.predicted.ranks),
            Cell(format_size(m.predicted.mesh)),
            _make_time_cell(m.predicted.seconds),
            _make_time_cell(m.seconds),
            Cell(format_change(m.error), m.error),
            Cell(format_change(of_scaling), of_scaling),
            Cell(format_bytes(m.predicted.memory), m.predicted.memory),
            Cell(format_bytes(m.memory), m.memory),
        ]
        for m, of_scaling in zip(measured, compute_scaling_errors(measured), strict=True)
    ]


def compute_scaling_errors(measured: Sequence[MeasuredStep]) -> list[float]:
    """Return the prediction errors after scaling the predictions so that the first row has no error."""
    return [(1 + m.error) / (1 + measured[0].error) - 1 for m in measured]


def dump_scaling(scaling: ScalingResult) -> dict[str, Any]:
    """Return the study as plain values for JSON, in seconds and bytes."""
    measured = [
        {
            "ranks": m.predicted.ranks,
            "image": list(m.predicted.image),
            "predicted": m.predicted.seconds,
            "measured": m.seconds,
            "error": m.error,
            "error_of_scaling": of_scaling,
            "memory_predicted": m.predicted.memory,
            "memory_measured": m.memory,
        }
        for m, of_scaling in zip(scaling.measured, compute_scaling_errors(scaling.measured), strict=True)
    ]
    return {
        "step": scaling.step,
        "strong": _dump_points(scaling.strong),
        "weak": _dump_points(scaling.weak),
        "measured": measured,
    }


def _dump_points(points: Sequence[ScalingPoint]) -> list[dict[str, Any]]:
    return [
        {
            "ranks": p.ranks,
            "mesh": list(p.mesh),
            "image": list(p.image),
            "tile": list(p.tile),
            **dict(p.times.list_parts()),
            "step": p.seconds,
            "efficiency": efficiency,
            "memory": p.memory,
            "room": p.available_memory,
        }
        for p, efficiency in zip(points, compute_efficiencies(points), strict=True)
    ]


def _make_time_cell(seconds: float) -> Cell:
    return Cell(format_seconds(seconds), seconds)
