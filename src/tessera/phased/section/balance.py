"""The balance of I/O and compute: how much is computed for a byte that is loaded, and how fast that makes a phase."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.phased.advise import Balance, advice, balances, measured_balance
from tessera.phased.section.schedules import way
from tessera.report.blocks import Cell, Column, Heading, Plot, Row, Section, Table, Tone
from tessera.report.cells import NONE
from tessera.report.figures import format_rate
from tessera.report.naming import case_names
from tessera.results.record import Record

AXIS = {"type": "log", "exponentformat": "SI", "minexponent": 0, "dtick": 1}
TONES: dict[str, Tone] = {"balanced": "good", "bound by I/O": "warn", "bound by compute": ""}


def balance_section(records: Sequence[Record]) -> Section | None:
    """Cases that stream, against what loading and computing allow; None without one."""
    streamed = [record for record in records if measured_balance(record) is not None]
    if not streamed:
        return None
    intro = (
        "A byte that is loaded has to pay for its way: with few FLOPs per byte a phase waits for its weights, with "
        "many the stream is idle. They balance at the FLOP/s of the machine over the bytes/s of its stream, where the "
        "two limits of the plot meet. More mini-batches per load, or larger ones, move a case to the right."
    )
    return Section("Balance of I/O and compute", intro, [_plot(streamed), _machines(streamed), _cases(streamed)])


def _plot(records: Sequence[Record]) -> Plot:
    traces: list[dict[str, Any]] = []
    for number, name in enumerate(dict.fromkeys(way(record) for record in records)):
        own = [record for record in records if way(record) == name]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": [record.metrics["flops_per_byte"].value for record in own],
                "y": [record.metrics["gflops"].value * 1e9 for record in own],
                "text": [record.case.key for record in own],
                "hovertemplate": "%{text}<br>%{x:.3~s} FLOPs per byte, %{y:.3~s}FLOP/s<extra></extra>",
                "marker": {"size": 10, "color": f"var(--series-{number % 6 + 1})"},
            }
        )
    seen = [value for trace in traces for value in trace["x"]]
    limits = {found.who: found for record in records if (found := measured_balance(record)) is not None}
    low = min([*seen, *(one.needed for one in limits.values())]) / 3
    high = max([*seen, *(one.needed for one in limits.values())]) * 3
    traces += [_limit(one, low, high, dash) for one, dash in zip(limits.values(), _dashes(), strict=False)]
    layout = {
        "height": 400 + 20 * len(traces),
        "legend": {"orientation": "v", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 12}},
        "margin": {"t": 20 * len(traces) + 16},
        "xaxis": AXIS | {"title": {"text": "FLOPs per byte loaded"}},
        "yaxis": AXIS | {"ticksuffix": "FLOP/s"},
    }
    caption = "What each case computes over its FLOPs per byte; the lines are what loading and computing allow."
    return Plot({"data": traces, "layout": layout}, caption)


def _limit(one: Balance, low: float, high: float, dash: str) -> dict[str, Any]:
    """As far as the balance the stream decides, beyond it the arithmetic."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"limit of {one.who}: {one.needed:,.0f} FLOPs per byte balance",
        "x": [low, one.needed, high],
        "y": [low * one.stream, one.flops, one.flops],
        "hoverinfo": "skip",
        "line": {"width": 1.3, "color": "var(--muted)", "dash": dash},
    }


def _dashes() -> list[str]:
    return ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"]


def _machines(records: Sequence[Record]) -> Table:
    columns: list[Heading] = [
        "Machine",
        Column("Compute", "number"),
        Column("Stream", "number"),
        Column("FLOPs per byte", "number", hint="at which loading and computing take equally long"),
        Column("From", "prose"),
    ]
    rows: list[Row] = [
        [
            one.who,
            Cell(format_rate(one.flops, "FLOP/s"), one.flops),
            Cell(format_rate(one.stream, "B/s"), one.stream),
            Cell(f"{one.needed:,.0f}", one.needed),
            one.source,
        ]
        for one in balances(records)
    ]
    return Table(columns, rows, "Balance of this host and of another machine")


def _cases(records: Sequence[Record]) -> Table:
    names = case_names([record.case for record in records])
    columns: list[Heading] = [
        "Case",
        Column("FLOPs per byte", "number"),
        Column("Needed", "number", hint="to balance the rates that this case showed"),
        Column("Bound", quick=True),
        Column("To balance", "prose", hint="one of these, if the rates stay as they are"),
    ]
    rows: list[Row] = []
    for record in records:
        found = advice(record)
        words = " or ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in found.instead.items())
        rows.append(
            [
                names[record.case.key].cell,
                Cell(f"{found.has:,.0f}", found.has),
                Cell(f"{found.needed:,.0f}", found.needed),
                Cell(found.bound, tone=TONES[found.bound]),
                words if found.bound != "balanced" else NONE,
            ]
        )
    return Table(columns, rows, "What bounds each case")
