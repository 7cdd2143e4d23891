"""Report part on `--by-operator`: share of the time by kind of operator, and the most expensive layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tessera.report.blocks import Block, Cell, Column, Heading, Plot, Row, Section, Table, Text
from tessera.report.cells import EMPTY_CELL, make_share_cell, make_value_cell
from tessera.report.naming import CaseNames, name_cases
from tessera.report.plots import make_row_layout, make_value_axis
from tessera.results.record import Record

MAX_KINDS = 6  # maximum number of operator kinds with their own colour in the plot
MAX_LAYERS = 30


def build_operators_section(records: Sequence[Record]) -> Section | None:
    """Build the report part on networks timed by operator; None if there are none."""
    timed = [r for r in records if r.status == "ok" and r.case.params.get("by_operator") and r.details.get("kinds")]
    if not timed:
        return None
    names = name_cases([record.case for record in timed])
    intro = (
        "Every operator is timed in place, by hooks in torch or by the engine's profiler. The roofline is the minimum "
        "time of the calibrated machine for the FLOPs and bytes, over the measured time."
    )
    blocks: list[Block] = [_summarise_totals(record, names) for record in timed]
    blocks += [
        Plot(_plot_shares(timed, names), "Share of each kind of operator in the time of all operators."),
        _build_table(timed, names, "kinds", "Operator", "Every kind of operator"),
        _build_table(timed, names, "layers", "Layer", f"The {MAX_LAYERS} most expensive layers of each case"),
    ]
    return Section("Operators' shares", intro, blocks)


def _summarise_totals(record: Record, names: CaseNames) -> Text:
    """Return a text with the timing method and the sum of the operator times."""
    return Text(f"`{names[record.case.key].short}`: {'; '.join(record.details.get('remarks', ()))}.")


def _plot_shares(records: Sequence[Record], names: CaseNames) -> dict[str, Any]:
    """Plot a stacked bar for each record: the most expensive kinds of operators, and all other kinds as one segment."""
    total: dict[str, float] = {}
    for record in records:
        for group in record.details["kinds"]:
            total[group["name"]] = total.get(group["name"], 0.0) + group["share"]
    kinds = sorted(total, key=lambda kind: total[kind], reverse=True)[:MAX_KINDS]
    labels = [names[record.case.key].words for record in records]
    traces = [
        _build_bars(kind, [_get_share(record, kind) for record in records], labels, f"var(--series-{number % 6 + 1})")
        for number, kind in enumerate(kinds)
    ]
    rest = [1 - sum(_get_share(record, kind) for kind in kinds) for record in records]
    if max(rest) > 0.001:
        traces.append(_build_bars("all others", rest, labels, "var(--muted)"))
    layout = make_row_layout(labels, 1, legend=True)
    layout["legend"] |= {"traceorder": "normal"}
    layout |= {"barmode": "stack", "xaxis": make_value_axis(" %", logarithmic=False) | {"range": [0, 100]}}
    return {"data": traces, "layout": layout}


def _get_share(record: Record, kind: str) -> float:
    return sum(float(group["share"]) for group in record.details["kinds"] if group["name"] == kind)


def _build_bars(name: str, shares: Sequence[float], labels: Sequence[str], colour: str) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "x": [100 * max(0.0, part) for part in shares],
        "y": list(labels),
        "hovertemplate": "%{fullData.name}: %{x:.1f} %<extra></extra>",
        "marker": {"color": colour},
    }


def _build_table(records: Sequence[Record], names: CaseNames, grouping: str, heading: str, caption: str) -> Table:
    columns: list[Heading] = [
        Column("Case", quick=True),
        heading,
        Column("Calls", "number"),
        Column("Time", "number"),
        Column("Share", "number", hint="of all operators"),
        Column("FLOP", "number"),
        Column("Bytes", "number", hint="read and written"),
        Column("Of roofline", "number", hint="minimum time of the machine over measured time"),
    ]
    rows = [
        [names[record.case.key].cell, *_build_row(group)]
        for record in records
        for group in record.details[grouping][: MAX_LAYERS if grouping == "layers" else None]
    ]
    return Table(columns, rows, caption)


def _build_row(group: Mapping[str, Any]) -> Row:
    return [
        str(group["name"]),
        Cell(str(group["calls"]), int(group["calls"])),
        make_value_cell(float(group["seconds"]), "s"),
        make_share_cell(float(group["share"])),
        make_value_cell(group["flops"], "FLOP") if group["flops"] else EMPTY_CELL,
        make_value_cell(group["moved"], "B") if group["moved"] else EMPTY_CELL,
        make_share_cell(group["roofline"]),
    ]
