"""The comparison of fused operators with their separate steps: speed-up, and the part due to saved allocations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tessera.operators.section.plots import format_times, make_dots, make_ratio_layout
from tessera.report.blocks import Cell, Column, Heading, Plot, Row, Section, Table, Tone
from tessera.report.cells import EMPTY_CELL, make_share_cell, make_value_cell
from tessera.report.naming import CaseNames, name_cases
from tessera.report.plots import make_error_bars
from tessera.results.record import Metric, Record

MAX_PLOT_ROWS = 20


def build_fused_section(records: Sequence[Record]) -> Section | None:
    """Build the section with the speed-up of every fused operator; None if no fused operator was measured."""
    complete = sorted(
        (r for r in records if r.status == "ok" and _is_complete(r)), key=lambda r: -_get_value(r, "gain")
    )
    if not complete:
        return None
    names = name_cases([record.case for record in complete])
    intro = (
        "The same steps measured three ways: separate calls, separate calls with preallocated buffers, and one kernel. "
        "The gain of preallocated buffers is the allocator's share; only the rest is due to fusion."
    )
    plot = _build_plot(complete[:MAX_PLOT_ROWS], names, len(complete))
    return Section("Fused against unfused", intro, [plot, _build_table(complete, names)])


def _is_complete(record: Record) -> bool:
    needed = ("time", "unfused", "kept", "gain")
    return all(name in record.metrics and record.metrics[name].value > 0 for name in needed)


def _get_value(record: Record, name: str) -> float:
    return record.metrics[name].value


def _build_plot(records: Sequence[Record], names: CaseNames, of: int) -> Plot:
    rows = [names[record.case.key].words for record in records]
    kept = [_get_value(record, "unfused") / _get_value(record, "kept") for record in records]
    gain = [_get_value(record, "gain") for record in records]
    bounds = [_get_bounds(record) for record in records]
    traces: list[dict[str, Any]] = [
        make_dots(
            "preallocated buffers",
            kept,
            rows,
            "%{y}: %{x:.2f}x with preallocated buffers",
            marker={"size": 9, "symbol": "circle-open", "line": {"width": 2}, "color": "var(--muted)"},
        ),
        make_dots(
            "fused",
            gain,
            rows,
            "%{y}: %{x:.2f}x fused",
            marker={"size": 10, "color": "var(--series-1)"},
            error_x=make_error_bars([(low, value, high) for (low, high), value in zip(bounds, gain, strict=True)]),
        ),
    ]
    layout = make_ratio_layout(rows, [*kept, *gain])
    selection = "" if len(records) == of else f" Shown are the {len(records)} greatest gains of {of:,}."
    return Plot({"data": traces, "layout": layout}, f"Speed-up over separate calls; right is faster.{selection}")


def _get_bounds(record: Record) -> tuple[float, float]:
    """Return the confidence interval of the speed-up; (gain, gain) if there are too few samples for an interval."""
    gain = _get_value(record, "gain")
    low, high = (record.metrics.get(name, Metric(gain)).value for name in ("gain_low", "gain_high"))
    return (low, high) if low > 0 and high < math.inf else (gain, gain)


def _build_table(records: Sequence[Record], names: CaseNames) -> Table:
    columns: list[Heading] = [
        "Case",
        Column("Separate", "number", hint="each step with a new output"),
        Column("Preallocated", "number", hint="the same steps with preallocated buffers"),
        Column("Fused", "number", hint="one kernel"),
        Column("Gain", "number", hint="separate over fused"),
        Column("Interval", "number", hint="of the gain; sorts by its width"),
        Column("Allocator's share", "number", hint="of the gain, on the logarithmic scale"),
    ]
    rows: list[Row] = []
    for record in records:
        gain, (low, high) = _get_value(record, "gain"), _get_bounds(record)
        part = record.metrics.get("allocator_share")
        known = low < high
        tone: Tone = "muted" if not known else "good" if low > 1 else "bad" if high < 1 else "muted"
        rows.append(
            [
                names[record.case.key].cell,
                *(make_value_cell(_get_value(record, name), "s") for name in ("unfused", "kept", "time")),
                Cell(format_times(gain), gain, tone),
                Cell(f"{low:.2f} to {high:.2f}", high - low) if known else EMPTY_CELL,
                make_share_cell(part.value) if part else EMPTY_CELL,
            ]
        )
    return Table(columns, rows, "Every fusion, the greatest gain first")
