"""Fit the time of an operator over its sizes: `time = overhead + work * cost`.

Times of small and large inputs differ by orders of magnitude, so the fit minimises relative residuals, weighted by the
error of each time. Overhead and cost are non-negative. The fit is biased low by design: no call is faster than its
overhead, but inputs that exceed the caches take a multiple of the fitted time. The largest residual is reported.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tessera.report.blocks import Column
from tessera.report.figures import format_rate, format_seconds, format_value
from tessera.report.measured import summarize_record
from tessera.report.record_tables import split_params
from tessera.results.record import Case, Record

MIN_SIZES = 3  # sizes of a fit
MIN_RELATIVE_ERROR = 0.01  # lower bound of the relative error between runs
DEFAULT_RELATIVE_ERROR = 0.1  # relative error assumed for a time with too few samples


@dataclass(frozen=True, slots=True, kw_only=True)
class SizePoint:
    """One measured size of an operator: work (FLOP or bytes), time, and relative error of the time."""

    name: str
    work: float
    seconds: float
    error: float = MIN_RELATIVE_ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingFit:
    """The fitted line of one operator, in seconds. `case` has no size; `unit` is the unit of work: FLOP or B."""

    case: Case
    unit: str
    overhead: float
    cost: float
    sizes: tuple[SizePoint, ...]

    def predict_seconds(self, work: float) -> float:
        """Return the time that the fitted line predicts for an amount of work."""
        return self.overhead + work * self.cost

    @property
    def break_even_work(self) -> float | None:
        """Amount of work whose computing time (work * cost) equals the overhead; None if overhead or cost is zero."""
        return self.overhead / self.cost if self.overhead and self.cost else None

    @property
    def rate(self) -> float | None:
        """Work per second without the overhead; None if the cost is zero."""
        return 1 / self.cost if self.cost else None

    @property
    def largest_residual(self) -> tuple[SizePoint, float]:
        """The size with the largest relative residual, and the ratio of its measured time to its fitted time."""
        ratios = [(size, size.seconds / self.predict_seconds(size.work)) for size in self.sizes]
        return max(ratios, key=lambda pair: abs(math.log(pair[1])))


def fit_line(sizes: Sequence[SizePoint]) -> tuple[float, float]:
    """Return the overhead in seconds and the cost in seconds per unit of work that fit the sizes best.

    >>> sizes = [SizePoint(name="small", work=1e3, seconds=3e-6), SizePoint(name="large", work=1e6, seconds=1.002e-3)]
    >>> [f"{part:.3g}" for part in fit_line(sizes)]
    ['2e-06', '1e-09']
    """
    import numpy as np
    from scipy.optimize import nnls

    work = np.array([size.work for size in sizes])
    seconds = np.array([size.seconds for size in sizes])
    weight = 1 / np.array([size.error for size in sizes])
    # Scale overhead and cost to about 1, because SciPy's tolerances are absolute.
    shortest, largest = seconds.min(), work.max()
    parts = np.stack([np.full(len(sizes), shortest), seconds.max() * work / largest], axis=1)
    (overhead, cost), _ = nnls(parts * (weight / seconds)[:, None], weight)
    return float(overhead * shortest), float(cost * seconds.max() / largest)


def fit_records(records: Sequence[Record]) -> list[ScalingFit]:
    """Fit every combination of operator, backend, pass and dtype that was measured in at least three sizes.

    A line through two points has no residual, so that nothing would show whether the time is linear in the work.
    """
    groups: dict[str, list[Record]] = {}
    for record in records:
        if record.status == "ok" and "work" in record.metrics and "time" in record.metrics:
            key = (
                f"{record.case.without('size').key} {record.metrics['work'].unit} {record.version} {record.fingerprint}"
            )
            groups.setdefault(key, []).append(record)
    fits = []
    for group in groups.values():
        sizes = tuple(sorted(map(_make_point, group), key=lambda size: size.work))
        if len({size.work for size in sizes if size.work > 0}) >= MIN_SIZES and all(size.seconds > 0 for size in sizes):
            overhead, cost = fit_line(sizes)
            case, unit = group[0].case.without("size"), group[0].metrics["work"].unit
            fits.append(ScalingFit(case=case, unit=unit, overhead=overhead, cost=cost, sizes=sizes))
    return fits


def build_fit_table(records: Sequence[Record]) -> tuple[list[Column], list[list[Any]]]:
    """Return columns and rows of a table of fits, with a column for each parameter that varies."""
    fits = fit_records(records)
    varying, _ = split_params([fit.case for fit in fits]) if fits else ([], {})
    figures = ("overhead", "cost", "rate", "break-even work", "largest residual")
    columns = [
        Column("operator"),
        *(Column(name) for name in varying),
        *(Column(name, "number") for name in figures),
        Column("sizes"),
    ]
    rows = [
        [
            fit.case.name,
            *(str(fit.case.params.get(name, "")) for name in varying),
            *format_fit(fit).values(),
            ", ".join(size.name for size in fit.sizes),
        ]
        for fit in fits
    ]
    return columns, rows


def format_fit(fit: ScalingFit) -> Mapping[str, str]:
    """Format the values of a fit for a table, by column name; missing values are empty."""
    size, ratio = fit.largest_residual
    return {
        "overhead": format_seconds(fit.overhead),
        "cost": f"{1e12 * fit.cost:.3g} ps/{fit.unit}" if fit.cost < 1e-9 else f"{1e9 * fit.cost:.3g} ns/{fit.unit}",
        "rate": format_rate(fit.rate, f"{fit.unit}/s") if fit.rate else "",
        "break_even": format_value(fit.break_even_work, fit.unit) if fit.break_even_work is not None else "",
        "largest_residual": f"{size.name} {ratio:.2f}x" if f"{ratio:.2f}" != "1.00" else "",
    }


def _make_point(record: Record) -> SizePoint:
    measurement = summarize_record(record)
    error = measurement.relative if measurement and measurement.relative is not None else DEFAULT_RELATIVE_ERROR
    return SizePoint(
        name=str(record.case.params.get("size", "")),
        work=record.metrics["work"].value,
        seconds=record.metrics["time"].value,
        error=math.hypot(MIN_RELATIVE_ERROR, error),
    )
