"""Fused operators against their steps, with the allocator's part of the gain told apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tessera.operators.section.ratios import even_line, ratio_axis, times
from tessera.report.blocks import Cell, Column, Heading, Plot, Row, Section, Table, Tone
from tessera.report.cells import NONE, figure, share
from tessera.report.naming import Names, case_names
from tessera.report.rows import row_layout
from tessera.results.record import Metric, Record

MOST_ROWS = 20


def fused_section(records: Sequence[Record]) -> Section | None:
    """The gain of every fusion; None where there is none."""
    found = sorted((r for r in records if r.status == "ok" and _complete(r)), key=lambda r: -_value(r, "gain"))
    if not found:
        return None
    names = case_names([record.case for record in found])
    intro = (
        "The same steps three times: as separate calls, as separate calls whose buffers are kept, and as one kernel. "
        "What kept buffers gain is the allocator's part; only the rest is the merit of the fusion."
    )
    return Section("Fused against unfused", intro, [_plot(found[:MOST_ROWS], names, len(found)), _table(found, names)])


def _complete(record: Record) -> bool:
    needed = ("time", "unfused", "kept", "gain")
    return all(name in record.metrics and record.metrics[name].value > 0 for name in needed)


def _value(record: Record, name: str) -> float:
    return record.metrics[name].value


def _plot(found: Sequence[Record], names: Names, of: int) -> Plot:
    rows = [names[record.case.key].short for record in found]
    kept = [_value(record, "unfused") / _value(record, "kept") for record in found]
    gain = [_value(record, "gain") for record in found]
    bounds = [_bounds(record) for record in found]
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "buffers kept",
            "x": kept,
            "y": rows,
            "hovertemplate": "%{y}: %{x:.2f}x with buffers kept<extra></extra>",
            "marker": {"size": 9, "symbol": "circle-open", "line": {"width": 2}, "color": "var(--muted)"},
        },
        {
            "type": "scatter",
            "mode": "markers",
            "name": "fused",
            "x": gain,
            "y": rows,
            "hovertemplate": "%{y}: %{x:.2f}x fused<extra></extra>",
            "marker": {"size": 10, "color": "var(--series-1)"},
            "error_x": {
                "type": "data",
                "symmetric": False,
                "array": [high - value for (_, high), value in zip(bounds, gain, strict=True)],
                "arrayminus": [value - low for (low, _), value in zip(bounds, gain, strict=True)],
                "thickness": 1.2,
                "width": 3,
            },
        },
    ]
    layout = row_layout(rows, 1, legend=True)
    layout["scattermode"] = "overlay"
    layout["xaxis"] = ratio_axis([*kept, *gain])
    layout["shapes"] = [even_line()]
    which = "" if len(found) == of else f" Shown are the {len(found)} greatest gains of {of:,}."
    return Plot(
        {"data": traces, "layout": layout}, f"How many times faster than separate calls; right is faster.{which}"
    )


def _bounds(record: Record) -> tuple[float, float]:
    """The interval of the gain; the gain itself twice where too few samples give none."""
    gain = _value(record, "gain")
    low, high = (record.metrics.get(name, Metric(gain)).value for name in ("gain_low", "gain_high"))
    return (low, high) if low > 0 and high < math.inf else (gain, gain)


def _table(found: Sequence[Record], names: Names) -> Table:
    columns: list[Heading] = [
        "Case",
        Column("Separate", "number", hint="each step with a new output"),
        Column("Buffers kept", "number", hint="the same steps into buffers that exist"),
        Column("Fused", "number", hint="one kernel"),
        Column("Gain", "number", hint="separate over fused"),
        Column("Interval", "number", hint="of the gain; sorts by its width"),
        Column("Allocator's part", "number", hint="of the gain, on the logarithmic scale"),
    ]
    rows: list[Row] = []
    for record in found:
        gain, (low, high) = _value(record, "gain"), _bounds(record)
        part = record.metrics.get("allocator_share")
        known = low < high
        tone: Tone = "muted" if not known else "good" if low > 1 else "bad" if high < 1 else "muted"
        rows.append(
            [
                names[record.case.key].cell,
                *(figure(_value(record, name), "s") for name in ("unfused", "kept", "time")),
                Cell(times(gain), gain, tone),
                Cell(f"{low:.2f} to {high:.2f}", high - low) if known else NONE,
                share(part.value) if part else NONE,
            ]
        )
    return Table(columns, rows, "Every fusion, the greatest gain first")
