"""Many operators by category: how much of the calibrated machine each category reaches, and its slowest case."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.measure.statistics import summarize
from tessera.operators.catalogue import OPERATORS, categories
from tessera.report.blocks import Block, Cell, Column, Heading, Plot, Row, Section, Table, Text
from tessera.report.cells import NONE, figure, label, number, share
from tessera.report.rows import row_layout
from tessera.report.runs import RunView
from tessera.results.record import Case, Record

OTHER = "other"  # operators that are not of the catalogue
MAIN = "torch"


def backend_of(case: Case) -> str:
    """The backend of a case; empty where it names none."""
    return str(case.params.get("backend", ""))


def main_backend(records: Sequence[Record]) -> list[Record]:
    """The records of torch or, where it is not there, of the first backend: shares of two are not to be mixed."""
    names = list(dict.fromkeys(backend_of(record.case) for record in records))
    if not names:
        return []
    wanted = MAIN if MAIN in names else names[0]
    return [record for record in records if backend_of(record.case) == wanted]


def by_category(records: Sequence[Record]) -> dict[str, list[Record]]:
    """The measured records of each category, in the order of the catalogue."""
    found: dict[str, list[Record]] = {category: [] for category in (*categories(), OTHER)}
    for record in records:
        if record.status == "ok" and "time" in record.metrics:
            operator = None if record.case.params.get("source") else OPERATORS.get(record.case.name)
            found[operator.category if operator else OTHER].append(record)
    return {category: own for category, own in found.items() if own}


def categories_section(runs: Sequence[RunView]) -> Section:
    """Bars and a table of the categories."""
    groups = {run.name: by_category(main_backend(run.records)) for run in runs}
    blocks: list[Block] = []
    if plot := _plot(groups):
        blocks.append(plot)
    else:
        words = "This machine is not calibrated: after `tessera doctor --calibrate`, records say what share they reach."
        blocks.append(Text(words, "muted"))
    blocks.append(_table(groups[runs[-1].name]))
    intro = "What a category reaches of the time that the calibrated machine would need for its FLOPs and bytes."
    return Section("By category", intro, blocks)


def _plot(groups: dict[str, dict[str, list[Record]]]) -> Plot | None:
    """A bar for the middle case of each category, and a whisker over the middle half of its cases."""
    traces: list[dict[str, Any]] = []
    rows: dict[str, None] = {}
    for place, (run, by_name) in enumerate(groups.items()):
        shares = {category: values for category, own in by_name.items() if (values := _shares(own))}
        if not shares:
            continue
        found = [summarize(values) for values in shares.values()]
        rows.update(dict.fromkeys(shares))
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": run,
                "y": list(shares),
                "x": [one.median for one in found],
                "text": [f"{one.count} cases, half of them {one.p25:.0%} to {one.p75:.0%}" for one in found],
                "textposition": "none",
                "hovertemplate": "%{y}: %{x:.0%}<br>%{text}<extra></extra>",
                "marker": {"color": f"var(--series-{place % 6 + 1})", "cornerradius": 3},
                "error_x": {
                    "type": "data",
                    "symmetric": False,
                    "array": [one.p75 - one.median for one in found],
                    "arrayminus": [one.median - one.p25 for one in found],
                    "thickness": 1.2,
                    "width": 3,
                    "color": "var(--ink)",
                },
            }
        )
    if not rows:
        return None
    layout = row_layout(list(rows), len(traces), legend=len(traces) > 1)
    layout["xaxis"] = {"side": "top", "tickformat": ".0%", "rangemode": "tozero"}
    line = {"color": "var(--muted)", "width": 1, "dash": "dot"}
    layout["shapes"] = [{"type": "line", "x0": 1, "x1": 1, "yref": "paper", "y0": 0, "y1": 1, "line": line}]
    caption = "Share of the roofline: the middle case of each category, and the middle half of its cases."
    return Plot({"data": traces, "layout": layout}, caption)


def _shares(records: Sequence[Record]) -> list[float]:
    return [record.metrics["roofline"].value for record in records if "roofline" in record.metrics]


def _table(groups: dict[str, list[Record]]) -> Table:
    columns: list[Heading] = [
        "Category",
        Column("Operators", "number"),
        Column("Cases", "number"),
        Column("Middle time", "number", hint="the median of the cases' times"),
        Column("Middle share", "number", hint="of the roofline"),
        "Slowest case",
        Column("Its time", "number"),
        "Furthest below the roofline",
        Column("Its share", "number"),
    ]
    rows: list[Row] = []
    for category, own in groups.items():
        times = summarize([record.metrics["time"].value for record in own])
        slowest = max(own, key=lambda record: record.metrics["time"].value)
        shares = _shares(own)
        lowest = min((r for r in own if "roofline" in r.metrics), key=_roofline, default=None)
        rows.append(
            [
                category,
                number(len({record.case.name for record in own})),
                number(len(own)),
                figure(times.median, "s"),
                share(summarize(shares).median) if shares else NONE,
                _named(slowest),
                figure(slowest.metrics["time"].value, "s"),
                _named(lowest) if lowest else NONE,
                share(_roofline(lowest)) if lowest else NONE,
            ]
        )
    return Table(columns, rows, "Categories")


def _roofline(record: Record) -> float:
    return record.metrics["roofline"].value


def _named(record: Record) -> Cell:
    """An operator with its size and pass; the whole case shows on pointing at it."""
    words = [
        record.case.name,
        *(str(record.case.params[name]) for name in ("size", "pass") if name in record.case.params),
    ]
    return Cell(" ".join(words), hint=label(record.case))
