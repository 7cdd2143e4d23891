"""Where the time of a network goes: the shares of its kinds of operators, and the layers that take most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tessera.report.blocks import Block, Cell, Column, Heading, Plot, Row, Section, Table, Text
from tessera.report.cells import NONE, figure, share
from tessera.report.naming import Names, case_names
from tessera.report.rows import row_layout, value_axis
from tessera.results.record import Record

MOST_KINDS = 6  # with a colour of their own
MOST_LAYERS = 30


def operators_section(records: Sequence[Record]) -> Section | None:
    """Networks that were timed operator by operator; None without one."""
    found = [r for r in records if r.status == "ok" and r.case.params.get("by_operator") and r.conditions.get("kinds")]
    if not found:
        return None
    names = case_names([record.case for record in found])
    intro = (
        "Every operator timed where it runs, by hooks around those of torch or by the engine. The roofline is the "
        "least time that the calibrated machine needs for the FLOPs and bytes, over the time taken."
    )
    blocks: list[Block] = [_beside_the_whole(record, names) for record in found]
    blocks += [
        Plot(_plot(found, names), "The part of all operators that each kind takes."),
        _table(found, names, "kinds", "Operator", "Every kind of operator"),
        _table(found, names, "layers", "Layer", f"The {MOST_LAYERS} layers of each that take most"),
    ]
    return Section("Operators' shares", intro, blocks)


def _beside_the_whole(record: Record, names: Names) -> Text:
    """Who took the times, and what the operators add up to."""
    said = [note for note in record.notes if note.startswith("operators ")]
    return Text(f"`{names[record.case.key].short}`: {'; '.join(said)}.")


def _plot(records: Sequence[Record], names: Names) -> dict[str, Any]:
    """A bar for each record, its parts the kinds that take most; the rest is one part."""
    total: dict[str, float] = {}
    for record in records:
        for one in record.conditions["kinds"]:
            total[one["name"]] = total.get(one["name"], 0.0) + one["share"]
    kinds = sorted(total, key=lambda kind: total[kind], reverse=True)[:MOST_KINDS]
    labels = [names[record.case.key].words for record in records]
    traces = [
        _bars(kind, [_share_of(record, kind) for record in records], labels, f"var(--series-{number % 6 + 1})")
        for number, kind in enumerate(kinds)
    ]
    rest = [1 - sum(_share_of(record, kind) for kind in kinds) for record in records]
    if max(rest) > 0.001:
        traces.append(_bars("all others", rest, labels, "var(--muted)"))
    layout = row_layout(labels, 1, legend=True)
    layout["legend"] |= {"traceorder": "normal"}
    layout |= {"barmode": "stack", "xaxis": value_axis(" %", logarithmic=False) | {"range": [0, 100]}}
    return {"data": traces, "layout": layout}


def _share_of(record: Record, kind: str) -> float:
    return sum(float(one["share"]) for one in record.conditions["kinds"] if one["name"] == kind)


def _bars(name: str, shares: Sequence[float], labels: Sequence[str], colour: str) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "x": [100 * max(0.0, part) for part in shares],
        "y": list(labels),
        "hovertemplate": "%{fullData.name}: %{x:.1f} %<extra></extra>",
        "marker": {"color": colour},
    }


def _table(records: Sequence[Record], names: Names, what: str, heading: str, caption: str) -> Table:
    columns: list[Heading] = [
        Column("Case", quick=True),
        heading,
        Column("Calls", "number"),
        Column("Time", "number"),
        Column("Share", "number", hint="of all operators"),
        Column("FLOP", "number"),
        Column("Bytes", "number", hint="read and written"),
        Column("Of roofline", "number", hint="the least time the machine allows, over the time taken"),
    ]
    rows = [
        [names[record.case.key].cell, *_row(one)]
        for record in records
        for one in record.conditions[what][: MOST_LAYERS if what == "layers" else None]
    ]
    return Table(columns, rows, caption)


def _row(one: Mapping[str, Any]) -> Row:
    return [
        str(one["name"]),
        Cell(str(one["calls"]), int(one["calls"])),
        figure(float(one["seconds"]), "s"),
        share(float(one["share"])),
        figure(one["flops"], "FLOP") if one["flops"] else NONE,
        figure(one["moved"], "B") if one["moved"] else NONE,
        share(one["roofline"]),
    ]
