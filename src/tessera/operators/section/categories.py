"""The categories of operators: the share of the roofline that each category reaches, and its slowest case."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.measure.statistics import summarize
from tessera.operators.catalogue import OPERATORS, group_by_category
from tessera.operators.section.plots import make_even_line
from tessera.report.blocks import Block, Cell, Column, Heading, Plot, Row, Section, Table, Text
from tessera.report.cells import EMPTY_CELL, format_case_label, make_count_cell, make_share_cell, make_value_cell
from tessera.report.plots import make_error_bars, make_row_layout
from tessera.report.runs import RunView
from tessera.results.record import Case, Record

OTHER_CATEGORY = "other"  # category of operators that are not in the catalogue
MAIN_BACKEND = "torch"


def get_backend(case: Case) -> str:
    """Return the backend of a case; empty if it has none."""
    return str(case.params.get("backend", ""))


def select_main_backend(records: Sequence[Record]) -> list[Record]:
    """Return the records of one backend (torch if present), because shares of different backends are not comparable."""
    names = list(dict.fromkeys(get_backend(record.case) for record in records))
    if not names:
        return []
    wanted = MAIN_BACKEND if MAIN_BACKEND in names else names[0]
    return [record for record in records if get_backend(record.case) == wanted]


def group_records(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Group the measured records by category, in the order of the catalogue."""
    groups: dict[str, list[Record]] = {category: [] for category in (*group_by_category(), OTHER_CATEGORY)}
    for record in records:
        if record.status == "ok" and "time" in record.metrics:
            operator = None if record.case.params.get("source") else OPERATORS.get(record.case.name)
            groups[operator.category if operator else OTHER_CATEGORY].append(record)
    return {category: group for category, group in groups.items() if group}


def build_categories_section(runs: Sequence[RunView]) -> Section:
    """Build the section with a plot and a table of the categories."""
    groups = {run.name: group_records(select_main_backend(run.records)) for run in runs}
    blocks: list[Block] = []
    if plot := _build_plot(groups):
        blocks.append(plot)
    else:
        words = "This machine is not calibrated: run `tessera doctor --calibrate` to get shares of the roofline."
        blocks.append(Text(words, "muted"))
    blocks.append(_build_table(groups[runs[-1].name]))
    intro = "Share of the roofline by category: the time that the calibrated machine predicts over the measured time."
    return Section("By category", intro, blocks)


def _build_plot(groups: dict[str, dict[str, list[Record]]]) -> Plot | None:
    """Plot the median share of the roofline of each category as a bar, with an error bar between the quartiles."""
    traces: list[dict[str, Any]] = []
    rows: dict[str, None] = {}
    for place, (run, by_name) in enumerate(groups.items()):
        shares = {category: values for category, own in by_name.items() if (values := _list_shares(own))}
        if not shares:
            continue
        summaries = [summarize(values) for values in shares.values()]
        rows.update(dict.fromkeys(shares))
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": run,
                "y": list(shares),
                "x": [summary.median for summary in summaries],
                "text": [
                    f"{summary.count} cases, half of them {summary.p25:.0%} to {summary.p75:.0%}"
                    for summary in summaries
                ],
                "textposition": "none",
                "hovertemplate": "%{y}: %{x:.0%}<br>%{text}<extra></extra>",
                "marker": {"color": f"var(--series-{place % 6 + 1})", "cornerradius": 3},
                "error_x": make_error_bars([(each.p25, each.median, each.p75) for each in summaries])
                | {"color": "var(--ink)"},
            }
        )
    if not rows:
        return None
    layout = make_row_layout(list(rows), len(traces), legend=len(traces) > 1)
    layout["xaxis"] = {"side": "top", "tickformat": ".0%", "rangemode": "tozero"}
    layout["shapes"] = [make_even_line()]
    caption = "Share of the roofline: median of each category, with its quartiles."
    return Plot({"data": traces, "layout": layout}, caption)


def _list_shares(records: Sequence[Record]) -> list[float]:
    return [_get_roofline(record) for record in records if "roofline" in record.metrics]


def _build_table(groups: dict[str, list[Record]]) -> Table:
    columns: list[Heading] = [
        "Category",
        Column("Operators", "number"),
        Column("Cases", "number"),
        Column("Median time", "number", hint="median over the cases"),
        Column("Median share", "number", hint="of the roofline"),
        "Slowest case",
        Column("Longest time", "number"),
        "Case with the lowest share",
        Column("Lowest share", "number"),
    ]
    rows: list[Row] = []
    for category, own in groups.items():
        times = summarize([record.metrics["time"].value for record in own])
        slowest = max(own, key=lambda record: record.metrics["time"].value)
        shares = _list_shares(own)
        lowest = min((r for r in own if "roofline" in r.metrics), key=_get_roofline, default=None)
        rows.append(
            [
                category,
                make_count_cell(len({record.case.name for record in own})),
                make_count_cell(len(own)),
                make_value_cell(times.median, "s"),
                make_share_cell(summarize(shares).median) if shares else EMPTY_CELL,
                _format_case(slowest),
                make_value_cell(slowest.metrics["time"].value, "s"),
                _format_case(lowest) if lowest else EMPTY_CELL,
                make_share_cell(_get_roofline(lowest)) if lowest else EMPTY_CELL,
            ]
        )
    return Table(columns, rows, "Categories")


def _get_roofline(record: Record) -> float:
    return record.metrics["roofline"].value


def _format_case(record: Record) -> Cell:
    """Format an operator with its size and pass; the tooltip shows the whole case."""
    words = [
        record.case.name,
        *(str(record.case.params[name]) for name in ("size", "pass") if name in record.case.params),
    ]
    return Cell(" ".join(words), hint=format_case_label(record.case))
