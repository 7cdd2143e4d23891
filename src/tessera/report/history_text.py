"""A history as text: charts of a few cases or a table of many, and the changes; or as JSON and CSV."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, TextIO

from tessera.report.blocks import Column
from tessera.report.figures import format_change, format_percent, format_value
from tessera.report.line_chart import draw_line_chart, draw_spark_line
from tessera.report.naming import CaseNames, name_cases
from tessera.report.tables import OutputFormat, print_rich, write_lines, write_rows
from tessera.results import strict_json
from tessera.results.changepoints import MIN_RUNS
from tessera.results.history import Change, ExclusionReason, History, MetricSeries, SeriesChange

MAX_CHARTS = 4
MAX_ROWS = 40
SPARK_LINE_WIDTH = 24  # width of a spark line in a table, in characters

EXCLUSION_TEXTS: dict[ExclusionReason, str] = {
    "device": "on another device than the newest",
    "conditions": "under other conditions than the newest",
    "version": "of an edited benchmark",
    "unit": "in another unit",
    "metric": "without this metric",
    "failed": "failed",
    "refused": "refused",
    "timed out": "timed out",
}
_CSV_COLUMNS = ("key", "run", "started", "value", "unit", "change")


def format_day(started: str) -> str:
    """Return a stored date without its time.

    >>> format_day("2026-03-01T12:00:59+01:00")
    '2026-03-01'
    """
    try:
        return f"{datetime.fromisoformat(started):%Y-%m-%d}"
    except ValueError:
        return started


def describe_change(change: Change) -> str:
    """Return `worse`, `better` or `changed`."""
    return {True: "worse", False: "better", None: "changed"}[change.harmful]


def write_history(
    history: History, output_format: OutputFormat, stream: TextIO, *, width: int, everything: bool = False
) -> None:
    """Write a history in an output format; `everything` also lists unchanged cases and excluded records."""
    if output_format == "json":
        stream.write(strict_json.dumps(to_plain_history(history), indent=1) + "\n")
        return
    if output_format == "csv":
        write_rows([Column(name) for name in _CSV_COLUMNS], _iter_points(history), "csv", stream)
        return
    names = name_cases([series.case for series in history.series])
    gap = "\n" if output_format == "markdown" else ""
    charts = output_format == "terminal" and len(history.series) <= MAX_CHARTS
    if charts:
        for number, series in enumerate(history.series):
            if number:
                print_rich("", stream)
            _write_chart(series, history.metric, names, stream, width)
    else:
        _write_series_table(_select_series(history, everything), names, output_format, stream)
        stream.write(gap)
    if history.changes:
        _write_changes(history, names, output_format, stream, numbered=charts)
        stream.write(gap)
    if everything and history.excluded:
        rows = [
            [names[a.key].words if a.key in names else a.key, a.run, EXCLUSION_TEXTS[a.why]] for a in history.excluded
        ]
        write_rows(
            [Column("case"), Column("run"), Column("why", "prose")],
            rows,
            output_format,
            stream,
            title="excluded records",
        )
        stream.write(gap)
    write_lines(_iter_summary(history, everything), output_format, stream)


def write_alerts(
    history: History, alerts: Sequence[SeriesChange], output_format: OutputFormat, stream: TextIO, *, newest: int
) -> None:
    """Write the new regressions of the `newest` runs, the largest first."""
    if output_format == "json":
        judged = sum(series.judged for series in history.series)
        regressions = [{"key": a.series.case.key, "unit": a.series.unit} | _to_plain_change(a.change) for a in alerts]
        document = {"metric": history.metric, "threshold": history.threshold, "newest": newest, "judged": judged}
        stream.write(strict_json.dumps(document | {"alerts": regressions}, indent=1) + "\n")
        return
    names = name_cases([series.case for series in history.series])
    columns = ["case", "since", "run", "from", "to", "change", "runs"]
    rows = [
        [
            alert.series.case.key if output_format == "csv" else names[alert.series.case.key].phrase,
            format_day(alert.change.started),
            alert.change.run,
            *_format_levels(alert.series, alert.change, raw=output_format == "csv"),
            str(alert.change.age),
        ]
        for alert in alerts
    ]
    if rows or output_format == "csv":
        write_rows(
            [Column(name, "number" if name in columns[3:] else "text") for name in columns], rows, output_format, stream
        )
    if output_format == "markdown" and rows:
        stream.write("\n")
    if output_format != "csv":
        write_lines(_iter_alert_summary(history, alerts, newest), output_format, stream)


def to_plain_history(history: History) -> dict[str, Any]:
    """Return a history as plain values."""
    return {
        "metric": history.metric,
        "threshold": history.threshold,
        "runs": list(history.runs),
        "series": [
            {
                "key": series.case.key,
                "unit": series.unit,
                "direction": series.direction,
                "judged": series.judged,
                "points": [asdict(point) for point in series.points],
                "changes": [_to_plain_change(change) for change in series.changes],
            }
            for series in history.series
        ],
        "apart": [asdict(excluded) for excluded in history.excluded],
    }


def _to_plain_change(change: Change) -> dict[str, Any]:
    names = ("run", "started", "before", "after", "change", "harmful")
    return {name: getattr(change, name) for name in names} | {"runs": change.age}


def _iter_points(history: History) -> Iterator[Sequence[object]]:
    for series in history.series:
        changes = {change.start: change.change for change in series.changes}
        for number, point in enumerate(series.points):
            yield series.case.key, point.run, point.started, point.value, series.unit, changes.get(number)


def _write_chart(series: MetricSeries, metric: str, names: CaseNames, stream: TextIO, width: int) -> None:
    first, last = series.points[0], series.points[-1]
    count = "1 run" if len(series.points) == 1 else f"{len(series.points)} runs"
    days = f"{format_day(first.started)} to {format_day(last.started)}"
    print_rich(f"{names[series.case.key].phrase}: {metric}, {count}, {days}", stream)
    lines = draw_line_chart(
        series.values, series.list_levels(), width=width - 2, label=lambda value: format_value(value, series.unit)
    )
    for line in lines:
        print_rich(f"  {line}", stream)


def _select_series(history: History, everything: bool) -> list[MetricSeries]:
    """Return the series to show, largest regressions first; above `MAX_ROWS`, unchanged series are omitted."""
    changed = list({series.case.key: series for series, _ in history.changes}.values())
    rest = [series for series in history.series if not series.changes]
    return changed if not everything and len(history.series) > MAX_ROWS else [*changed, *rest]


def _write_series_table(
    shown: Sequence[MetricSeries], names: CaseNames, output_format: OutputFormat, stream: TextIO
) -> None:
    columns = [Column("case"), Column("runs", "number"), Column("level", "number"), Column("changes", "prose")]
    rows = [
        [
            names[series.case.key].phrase,
            len(series.points),
            format_value(series.list_levels()[-1][2], series.unit),
            ", ".join(format_change(change.change) for change in series.changes),
            draw_spark_line(series.values, SPARK_LINE_WIDTH),
        ]
        for series in shown
    ]
    if rows:
        write_rows([*columns, Column("over time")], rows, output_format, stream)


def _write_changes(
    history: History, names: CaseNames, output_format: OutputFormat, stream: TextIO, *, numbered: bool
) -> None:
    several = len(history.series) > 1
    heads = [*([""] if numbered else []), *(["case"] if several else []), "since", "run"]
    columns = [*map(Column, heads), *(Column(name, "number") for name in ("from", "to", "change")), Column("effect")]
    rows = [
        [
            *([str(series.changes.index(change) + 1)] if numbered else []),
            *([names[series.case.key].phrase] if several else []),
            format_day(change.started),
            change.run,
            *_format_levels(series, change),
            describe_change(change),
        ]
        for series, change in history.changes
    ]
    write_rows(columns, rows, output_format, stream)


def _format_levels(series: MetricSeries, change: Change, *, raw: bool = False) -> tuple[object, object, object]:
    if raw:
        return change.before, change.after, change.change
    before, after = (format_value(value, series.unit) for value in (change.before, change.after))
    return before, after, format_change(change.change)


def _iter_summary(history: History, everything: bool) -> Iterator[str]:
    kinds = Counter(describe_change(change) for _, change in history.changes)
    changes = ", ".join(f"{number} {kind}" for kind, number in kinds.items()) or "no change"
    cases = "1 case" if len(history.series) == 1 else f"{len(history.series):,} cases"
    yield f"{cases}, {len(history.runs)} runs, threshold {format_percent(history.threshold)}: {changes}"
    if short := sum(not series.judged for series in history.series):
        yield f"{short:,} of them cannot be judged: this requires {MIN_RUNS} runs and values above zero"
    if history.common_change_run:
        yield f"half of all cases changed at {history.common_change_run}: check the machine and the libraries first"
    if not everything and len(history.series) > MAX_ROWS:
        yield "cases without a change are not listed; --all lists them"
    if history.excluded:
        counts = Counter(excluded.why for excluded in history.excluded)
        listed = ", ".join(f"{number} {EXCLUSION_TEXTS[why]}" for why, number in counts.most_common())
        yield f"excluded records: {listed}" + ("" if everything else "; --all lists them")


def _iter_alert_summary(history: History, alerts: Sequence[SeriesChange], newest: int) -> Iterator[str]:
    judged = sum(series.judged for series in history.series)
    count = f"{len(alerts):,} new regressions" if len(alerts) != 1 else "1 new regression"
    yield f"{count} in the newest {newest} runs of {judged:,} cases, threshold {format_percent(history.threshold)}"
    if history.common_change_run and any(alert.change.run == history.common_change_run for alert in alerts):
        yield f"half of all cases changed at {history.common_change_run}: check the machine and the libraries first"
    if gone := sum(not history.is_current(series, newest) for series in history.series):
        yield f"{gone:,} cases are no longer measured: they cause no alert"
