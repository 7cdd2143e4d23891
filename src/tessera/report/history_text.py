"""A history as text: charts of a few cases, a table of many, and the changes; or all of it for machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, TextIO

from tessera.report.figures import format_percent, format_value
from tessera.report.line_chart import line_chart, spark_line
from tessera.report.naming import Names, case_names
from tessera.report.tables import Column, Form, render, show
from tessera.results import strict_json
from tessera.results.changepoints import MIN_RUNS
from tessera.results.history import Alert, Change, History, Series, Why

MOST_CHARTS = 4
MOST_ROWS = 40
SPARKS = 24  # columns of the line in a table

MEANING: dict[Why, str] = {
    "conditions": "under other conditions than the newest",
    "version": "of an edited benchmark",
    "unit": "in another unit",
    "metric": "without this metric",
    "failed": "failed",
    "refused": "refused",
    "timed out": "timed out",
}
_POINTS = ("key", "run", "started", "value", "unit", "change")


def day(started: str) -> str:
    """A stored date without its time.

    >>> day("2026-03-01T12:00:59+01:00")
    '2026-03-01'
    """
    try:
        return f"{datetime.fromisoformat(started):%Y-%m-%d}"
    except ValueError:
        return started


def word(change: Change) -> str:
    """What a change is for the reader."""
    return {True: "worse", False: "better", None: "changed"}[change.harmful]


def write_history(history: History, form: Form, stream: TextIO, *, width: int, everything: bool = False) -> None:
    """The whole history in one of its forms; `everything` lists what a long terminal table leaves out."""
    if form == "json":
        stream.write(strict_json.dumps(history_json(history), indent=1) + "\n")
        return
    if form == "csv":
        render([Column(name) for name in _POINTS], _point_rows(history), "csv", stream)
        return
    names = case_names([series.case for series in history.series])
    gap = "\n" if form == "markdown" else ""
    charts = form == "terminal" and len(history.series) <= MOST_CHARTS
    if charts:
        for number, series in enumerate(history.series):
            if number:
                show("", stream)
            _chart(series, history.metric, names, stream, width)
    else:
        _table(_shown(history, everything), names, form, stream)
        stream.write(gap)
    if history.changes:
        _changes(history, names, form, stream, numbered=charts)
        stream.write(gap)
    if everything and history.apart:
        rows = [[names[a.key].words if a.key in names else a.key, a.run, MEANING[a.why]] for a in history.apart]
        render([Column("case"), Column("run"), Column("why")], rows, form, stream, title="in no line")
        stream.write(gap)
    _lines(_summary(history, everything), form, stream)


def write_alerts(history: History, alerts: Sequence[Alert], form: Form, stream: TextIO, *, newest: int) -> None:
    """The new regressions, the most harmful first."""
    if form == "json":
        judged = sum(series.judged for series in history.series)
        found = [{"key": a.series.case.key, "unit": a.series.unit} | _change_json(a.change) for a in alerts]
        document = {"metric": history.metric, "threshold": history.threshold, "newest": newest, "judged": judged}
        stream.write(strict_json.dumps(document | {"alerts": found}, indent=1) + "\n")
        return
    names = case_names([series.case for series in history.series])
    columns = ["case", "since", "run", "from", "to", "change", "runs"]
    rows = [
        [
            alert.series.case.key if form == "csv" else names[alert.series.case.key].spoken,
            day(alert.change.started),
            alert.change.run,
            *_levels(alert.series, alert.change, raw=form == "csv"),
            str(alert.change.age),
        ]
        for alert in alerts
    ]
    if rows or form == "csv":
        render([Column(name, "right" if name in columns[3:] else "left") for name in columns], rows, form, stream)
    if form == "markdown" and rows:
        stream.write("\n")
    if form != "csv":
        _lines(_verdict(history, alerts, newest), form, stream)


def history_json(history: History) -> dict[str, Any]:
    """Everything as plain values."""
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
                "points": [{"run": p.run, "started": p.started, "value": p.value} for p in series.points],
                "changes": [_change_json(change) for change in series.changes],
            }
            for series in history.series
        ],
        "apart": [{"key": a.key, "run": a.run, "why": a.why} for a in history.apart],
    }


def _change_json(change: Change) -> dict[str, Any]:
    return {
        "run": change.run,
        "started": change.started,
        "before": change.before,
        "after": change.after,
        "change": change.change,
        "harmful": change.harmful,
        "runs": change.age,
    }


def _point_rows(history: History) -> Iterator[Sequence[object]]:
    for series in history.series:
        changes = {change.start: change.change for change in series.changes}
        for number, point in enumerate(series.points):
            yield series.case.key, point.run, point.started, point.value, series.unit, changes.get(number)


def _chart(series: Series, metric: str, names: Names, stream: TextIO, width: int) -> None:
    first, last = series.points[0], series.points[-1]
    count = "1 run" if len(series.points) == 1 else f"{len(series.points)} runs"
    show(f"{names[series.case.key].spoken}: {metric}, {count}, {day(first.started)} to {day(last.started)}", stream)
    lines = line_chart(
        series.values, series.levels(), width=width - 2, label=lambda value: format_value(value, series.unit)
    )
    for line in lines:
        show(f"  {line}", stream)


def _shown(history: History, everything: bool) -> list[Series]:
    """All series, or of many only those that changed; the largest harmful changes first."""
    changed = list({series.case.key: series for series, _ in history.changes}.values())
    rest = [series for series in history.series if not series.changes]
    return changed if not everything and len(history.series) > MOST_ROWS else [*changed, *rest]


def _table(shown: Sequence[Series], names: Names, form: Form, stream: TextIO) -> None:
    columns = [Column("case"), Column("runs", "right"), Column("level", "right"), Column("changes")]
    rows = [
        [
            names[series.case.key].spoken,
            len(series.points),
            format_value(series.levels()[-1][2], series.unit),
            ", ".join(format_percent(change.change, signed=True) for change in series.changes),
            spark_line(series.values, SPARKS),
        ]
        for series in shown
    ]
    if rows:
        render([*columns, Column("over time")], rows, form, stream)


def _changes(history: History, names: Names, form: Form, stream: TextIO, *, numbered: bool) -> None:
    several = len(history.series) > 1
    heads = [*([""] if numbered else []), *(["case"] if several else []), "since", "run"]
    columns = [*map(Column, heads), *(Column(name, "right") for name in ("from", "to", "change")), Column("is")]
    rows = [
        [
            *([str(series.changes.index(change) + 1)] if numbered else []),
            *([names[series.case.key].spoken] if several else []),
            day(change.started),
            change.run,
            *_levels(series, change),
            word(change),
        ]
        for series, change in history.changes
    ]
    render(columns, rows, form, stream)


def _levels(series: Series, change: Change, *, raw: bool = False) -> tuple[object, object, object]:
    if raw:
        return change.before, change.after, change.change
    before, after = (format_value(value, series.unit) for value in (change.before, change.after))
    return before, after, format_percent(change.change, signed=True)


def _summary(history: History, everything: bool) -> Iterator[str]:
    kinds = Counter(word(change) for _, change in history.changes)
    found = ", ".join(f"{number} {kind}" for kind, number in kinds.items()) or "no change"
    cases = "1 case" if len(history.series) == 1 else f"{len(history.series):,} cases"
    yield f"{cases}, {len(history.runs)} runs, threshold {format_percent(history.threshold)}: {found}"
    if short := sum(not series.judged for series in history.series):
        yield f"{short:,} of them cannot be judged: a change needs {MIN_RUNS} runs and figures above zero"
    if history.moved_together:
        yield f"half of all cases changed at {history.moved_together}: look at the machine and the libraries first"
    if not everything and len(history.series) > MOST_ROWS:
        yield "cases without a change are not listed; --all lists them"
    if history.apart:
        counts = Counter(apart.why for apart in history.apart)
        listed = ", ".join(f"{number} {MEANING[why]}" for why, number in counts.most_common())
        yield f"records in no line: {listed}" + ("" if everything else "; --all lists them")


def _verdict(history: History, alerts: Sequence[Alert], newest: int) -> Iterator[str]:
    judged = sum(series.judged for series in history.series)
    found = f"{len(alerts):,} new regressions" if len(alerts) != 1 else "1 new regression"
    yield f"{found} in the newest {newest} runs of {judged:,} cases, threshold {format_percent(history.threshold)}"
    if history.moved_together and any(alert.change.run == history.moved_together for alert in alerts):
        yield f"half of all cases changed at {history.moved_together}: look at the machine and the libraries first"
    if gone := sum(not history.current(series, newest) for series in history.series):
        yield f"{gone:,} cases are no longer measured: they raise no alert"


def _lines(lines: Iterator[str], form: Form, stream: TextIO) -> None:
    for line in lines:
        if form == "markdown":
            stream.write(f"- {line}\n")
        else:
            show(line, stream)
