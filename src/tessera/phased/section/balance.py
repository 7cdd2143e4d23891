"""The balance of I/O and compute in the report: a roofline plot and the bottleneck of every streaming case."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.phased.advise import Balance, build_advice, get_measured_balance, list_balances
from tessera.phased.section.schedules import describe_variant
from tessera.report.blocks import Cell, Column, Heading, Plot, Row, Section, Table, Tone
from tessera.report.cells import EMPTY_CELL
from tessera.report.figures import format_rate
from tessera.report.naming import name_cases
from tessera.results.record import Record

LOG_AXIS = {"type": "log", "exponentformat": "SI", "minexponent": 0, "dtick": 1}
LINE_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
BOUND_TONES: dict[str, Tone] = {"balanced": "good", "bound by I/O": "warn", "bound by compute": ""}


def build_balance_section(records: Sequence[Record]) -> Section | None:
    """Return plot and tables of the cases that stream weights; None if there are none."""
    streamed = [record for record in records if get_measured_balance(record) is not None]
    if not streamed:
        return None
    intro = (
        "With few FLOPs per byte loaded, a phase waits for its weights; with many, the stream is idle. Loading and "
        "computing balance at the FLOP/s of the machine over the bytes/s of its stream, where the two limits of the "
        "plot meet. More or larger mini-batches per load move a case to the right."
    )
    return Section(
        "Balance of I/O and compute",
        intro,
        [_build_plot(streamed), _build_machine_table(streamed), _build_case_table(streamed)],
    )


def _build_plot(records: Sequence[Record]) -> Plot:
    traces: list[dict[str, Any]] = []
    for number, name in enumerate(dict.fromkeys(describe_variant(record) for record in records)):
        variant_records = [record for record in records if describe_variant(record) == name]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": [record.metrics["flops_per_byte"].value for record in variant_records],
                "y": [record.metrics["gflops"].value * 1e9 for record in variant_records],
                "text": [record.case.key for record in variant_records],
                "hovertemplate": "%{text}<br>%{x:.3~s} FLOPs per byte, %{y:.3~s}FLOP/s<extra></extra>",
                "marker": {"size": 10, "color": f"var(--series-{number % 6 + 1})"},
            }
        )
    shown = [value for trace in traces for value in trace["x"]]
    limits = {b.machine: b for record in records if (b := get_measured_balance(record)) is not None}
    shown += [balance.flops_per_byte for balance in limits.values()]
    low, high = min(shown) / 3, max(shown) * 3
    traces += [
        _build_limit_line(line, low, high, dash) for line, dash in zip(limits.values(), LINE_DASHES, strict=False)
    ]
    layout = {
        "height": 400 + 20 * len(traces),
        "legend": {"orientation": "v", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 12}},
        "margin": {"t": 20 * len(traces) + 16},
        "xaxis": LOG_AXIS | {"title": {"text": "FLOPs per byte loaded"}},
        "yaxis": LOG_AXIS | {"ticksuffix": "FLOP/s"},
    }
    caption = "FLOP/s of each case over its FLOPs per byte; the lines are the limits of loading and computing."
    return Plot({"data": traces, "layout": layout}, caption)


def _build_limit_line(balance: Balance, low: float, high: float, dash: str) -> dict[str, Any]:
    """Return a roofline as a plot trace: limited by bandwidth below the balance, by compute above it."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"limit of {balance.machine}: {balance.flops_per_byte:,.0f} FLOPs per byte balance",
        "x": [low, balance.flops_per_byte, high],
        "y": [low * balance.bandwidth, balance.flops, balance.flops],
        "hoverinfo": "skip",
        "line": {"width": 1.3, "color": "var(--muted)", "dash": dash},
    }


def _build_machine_table(records: Sequence[Record]) -> Table:
    columns: list[Heading] = [
        "Machine",
        Column("Compute", "number"),
        Column("Stream", "number"),
        Column("FLOPs per byte", "number", hint="at which loading and computing take equally long"),
        Column("Source", "prose"),
    ]
    rows: list[Row] = [
        [
            balance.machine,
            Cell(format_rate(balance.flops, "FLOP/s"), balance.flops),
            Cell(format_rate(balance.bandwidth, "B/s"), balance.bandwidth),
            Cell(f"{balance.flops_per_byte:,.0f}", balance.flops_per_byte),
            balance.source,
        ]
        for balance in list_balances(records)
    ]
    return Table(columns, rows, "Balance of this host and of described machines")


def _build_case_table(records: Sequence[Record]) -> Table:
    names = name_cases([record.case for record in records])
    columns: list[Heading] = [
        "Case",
        Column("FLOPs per byte", "number"),
        Column("Needed", "number", hint="FLOPs per byte that balance the measured rates of this case"),
        Column("Bound", quick=True),
        Column("To balance", "prose", hint="change one of these, if the rates stay as measured"),
    ]
    rows: list[Row] = []
    for record in records:
        advice = build_advice(record)
        changes = " or ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in advice.alternatives.items())
        rows.append(
            [
                names[record.case.key].cell,
                Cell(f"{advice.flops_per_byte:,.0f}", advice.flops_per_byte),
                Cell(f"{advice.needed_flops_per_byte:,.0f}", advice.needed_flops_per_byte),
                Cell(advice.bound, tone=BOUND_TONES[advice.bound]),
                changes if advice.bound != "balanced" else EMPTY_CELL,
            ]
        )
    return Table(columns, rows, "Bottleneck of each case")
