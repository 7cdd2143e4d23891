"""A record as one flat row, for spreadsheets and data frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tessera.results import strict_json
from tessera.results.record import Metric, Record
from tessera.results.rows import storable

# New columns come last: files of two releases stay readable by position as well as by name.
COLUMNS: dict[str, type] = {
    "key": str,
    "feature": str,
    "name": str,
    "params": str,
    "version": str,
    "status": str,
    "reason": str,
    "unit": str,
    "direction": str,
    "launches": int,
    "samples": int,
    "p25": float,
    "median": float,
    "p75": float,
    "p99": float,
    "metrics": str,
    "predicted": str,
    "fingerprint": str,
    "notes": str,
    "started": str,
    "seconds": float,
}


def flat(record: Record) -> dict[str, Any]:
    """The columns of one record. Quantiles are over the values of all launches; None where there are none."""
    values = record.values
    p25, median, p75, p99 = _quantiles(values)
    row = {
        "key": record.case.key,
        "feature": record.case.feature,
        "name": record.case.name,
        "params": strict_json.dumps(dict(record.case.params), sort_keys=True),
        "version": record.version,
        "status": record.status,
        "reason": record.reason,
        "unit": record.unit,
        "direction": record.direction,
        "launches": len(record.launches),
        "samples": len(values),
        "p25": p25,
        "median": median,
        "p75": p75,
        "p99": p99,
        "metrics": _metrics(record.metrics),
        "predicted": _metrics(record.predicted),
        "fingerprint": record.fingerprint,
        "notes": "\n".join(record.notes),
        "started": record.started,
        "seconds": record.seconds,
    }
    return {name: storable(cell) if isinstance(cell, str) else cell for name, cell in row.items()}


def _quantiles(values: tuple[float, ...]) -> list[float | None]:
    if not values:
        return [None] * 4
    import numpy as np

    from tessera.measure.statistics import summarize

    with np.errstate(invalid="ignore"):  # between two infinities there is no quantile, and that is well
        summary = summarize(values)
    return [summary.p25, summary.median, summary.p75, summary.p99]


def _metrics(metrics: Mapping[str, Metric]) -> str:
    return strict_json.dumps({name: {"value": m.value, "unit": m.unit} for name, m in metrics.items()})
