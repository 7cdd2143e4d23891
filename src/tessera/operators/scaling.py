"""What a call costs whatever its size, and what each unit of its work adds: `time = overhead + n * cost`.

The line is fitted over the sizes in which an operator was measured. Times of small and large inputs lie far apart, so
relative residuals are minimised, each weighted by how well its time is known, and neither part may be negative. Such a
fit leans to the low side, as it should: no call is faster than its overhead, but one whose data leave the caches takes
many times what the line says. How far the worst size is off it is part of the answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tessera.report.figures import format_rate, format_seconds, format_value
from tessera.report.generic import split_params
from tessera.report.measured import measured
from tessera.report.tables import Column
from tessera.results.record import Case, Record

LEAST_ERROR = 0.01  # no time is known better than this from one run to the next
UNKNOWN_ERROR = 0.1  # of a time with too few samples to say


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One size of an operator: its work, its time, and the relative error of that."""

    name: str
    work: float
    seconds: float
    error: float = LEAST_ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The line of one operator; `case` is without its size, `unit` is that of the work: FLOP or B."""

    case: Case
    unit: str
    overhead: float
    cost: float
    sizes: tuple[Size, ...]

    def seconds(self, work: float) -> float:
        """What the line gives for some work."""
        return self.overhead + work * self.cost

    @property
    def even(self) -> float | None:
        """The work that takes as long as the overhead; None where either is too small to be seen."""
        return self.overhead / self.cost if self.overhead and self.cost else None

    @property
    def rate(self) -> float | None:
        """Work per second without the overhead."""
        return 1 / self.cost if self.cost else None

    @property
    def furthest(self) -> tuple[Size, float]:
        """The size that is furthest off the line, and how many times the line it takes."""
        found = [(size, size.seconds / self.seconds(size.work)) for size in self.sizes]
        return max(found, key=lambda pair: abs(math.log(pair[1])))


def fit_line(sizes: Sequence[Size]) -> tuple[float, float]:
    """The overhead and the cost that fit some sizes best.

    >>> sizes = [Size(name="small", work=1e3, seconds=3e-6), Size(name="large", work=1e6, seconds=1.002e-3)]
    >>> [f"{part:.3g}" for part in fit_line(sizes)]
    ['2e-06', '1e-09']
    """
    import numpy as np
    from scipy.optimize import nnls

    work = np.array([size.work for size in sizes])
    seconds = np.array([size.seconds for size in sizes])
    weight = 1 / np.array([size.error for size in sizes])
    # Both unknowns in units in which they are about one: SciPy's tolerances are absolute.
    shortest, largest = seconds.min(), work.max()
    parts = np.stack([np.full(len(sizes), shortest), seconds.max() * work / largest], axis=1)
    (overhead, cost), _ = nnls(parts * (weight / seconds)[:, None], weight)
    return float(overhead * shortest), float(cost * seconds.max() / largest)


def fits(records: Sequence[Record]) -> list[Fit]:
    """The line of every operator, backend, pass and dtype that was measured in two sizes or more."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        if record.status == "ok" and "work" in record.metrics and "time" in record.metrics:
            key = f"{_sizeless(record.case).key} {record.metrics['work'].unit} {record.version} {record.fingerprint}"
            groups.setdefault(key, []).append(record)
    found = []
    for own in groups.values():
        sizes = tuple(sorted(map(_size, own), key=lambda size: size.work))
        if len({size.work for size in sizes if size.work > 0}) > 1 and all(size.seconds > 0 for size in sizes):
            overhead, cost = fit_line(sizes)
            case, unit = _sizeless(own[0].case), own[0].metrics["work"].unit
            found.append(Fit(case=case, unit=unit, overhead=overhead, cost=cost, sizes=sizes))
    return found


def fit_table(records: Sequence[Record]) -> tuple[list[Column], list[list[Any]]]:
    """The fits as a table: a row for each, a column for each parameter that varies."""
    found = fits(records)
    varying, _ = split_params([fit.case for fit in found]) if found else ([], {})
    figures = ("overhead", "cost", "rate", "overhead = work at", "furthest off")
    columns = [
        Column("operator"),
        *(Column(name) for name in varying),
        *(Column(name, "right") for name in figures),
        Column("sizes"),
    ]
    rows = [
        [
            fit.case.name,
            *(str(fit.case.params.get(name, "")) for name in varying),
            *format_fit(fit).values(),
            ", ".join(size.name for size in fit.sizes),
        ]
        for fit in found
    ]
    return columns, rows


def format_fit(fit: Fit) -> Mapping[str, str]:
    """The figures of a fit as people read them; those that it does not have are empty."""
    size, ratio = fit.furthest
    return {
        "overhead": format_seconds(fit.overhead),
        "cost": f"{1e12 * fit.cost:.3g} ps/{fit.unit}" if fit.cost < 1e-9 else f"{1e9 * fit.cost:.3g} ns/{fit.unit}",
        "rate": format_rate(fit.rate, f"{fit.unit}/s") if fit.rate else "",
        "even": format_value(fit.even, fit.unit) if fit.even is not None else "",
        "furthest": f"{size.name} {ratio:.2f}x" if f"{ratio:.2f}" != "1.00" else "",
    }


def _size(record: Record) -> Size:
    found = measured(record)
    own = found.relative if found and found.relative is not None else UNKNOWN_ERROR
    return Size(
        name=str(record.case.params.get("size", "")),
        work=record.metrics["work"].value,
        seconds=record.metrics["time"].value,
        error=math.hypot(LEAST_ERROR, own),
    )


def _sizeless(case: Case) -> Case:
    kept = {name: value for name, value in case.params.items() if name != "size"}
    return Case(feature=case.feature, name=case.name, params=kept)
