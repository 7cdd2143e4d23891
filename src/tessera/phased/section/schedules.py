"""Schedules side by side: the same network loaded and computed in turn, overlapped, and all in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.report.blocks import Cell, Column, Heading, Plot, Row, Section, Table
from tessera.report.cells import NONE, figure, share
from tessera.report.figures import format_seconds
from tessera.report.measured import INTERVAL_HINT, measured
from tessera.report.naming import Names, case_names
from tessera.report.rows import row_layout, value_axis
from tessera.results.record import Case, Record

# What follows from the schedule, or has no meaning for some of them.
FOLLOWS = ("schedule", "devices", "store", "cold", "budget", "activations", "workers")


def schedule_section(records: Sequence[Record]) -> Section | None:
    """Every case, those of one network together; None without one."""
    if not records:
        return None
    intro = (
        "`sequential` loads a phase and then computes it; `overlapped` and `phased` load the next phase meanwhile, in "
        "the background or on the other device; `data-parallel` divides the batch; `sharded` and `resident` have all "
        "weights in memory and load nothing. An iteration passes all its mini-batches through a phase in one go."
    )
    names = case_names([whatever_schedule(record.case) for record in records])
    return Section("Schedules side by side", intro, [_plot(records, names), _table(records, names)])


def whatever_schedule(case: Case) -> Case:
    """The same network and batches, however they are run: a row of the plot."""
    kept = {name: value for name, value in case.params.items() if name not in FOLLOWS}
    return Case(feature=case.feature, name=case.name, params=kept)


def way(record: Record) -> str:
    """The schedule, and from where it streams if it does."""
    storage = str(record.conditions.get("storage", ""))
    return f"{record.case.params.get('schedule', '')}, {storage}" if storage else str(record.case.params["schedule"])


def _plot(records: Sequence[Record], names: Names) -> Plot:
    """A bar for each way to run a network, and a mark on it where its ideal is."""
    labels = {record.case.key: names[whatever_schedule(record.case).key].words for record in records}
    ways = list(dict.fromkeys(way(record) for record in records))
    traces: list[dict[str, Any]] = []
    for number, name in enumerate(ways):
        own = [record for record in records if way(record) == name]
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": name,
                "y": [labels[record.case.key] for record in own],
                "x": [record.metrics["time"].value for record in own],
                "text": [_in_words(record) for record in own],
                "textposition": "none",
                "hovertemplate": "%{text}<extra></extra>",
                "marker": {"color": f"var(--series-{number % 6 + 1})"},
            }
        )
    layout = row_layout(list(dict.fromkeys(labels.values())), len(traces), legend=len(traces) > 1)
    layout["xaxis"] = value_axis("s", logarithmic=False) | {"rangemode": "tozero"}
    return Plot({"data": traces, "layout": layout}, "Time of an iteration; shorter is better.")


def _in_words(record: Record) -> str:
    metrics = record.metrics
    words = [f"{way(record)}: {format_seconds(metrics['time'].value)}"]
    words += [
        f"{name} {format_seconds(metrics[name].value)}" for name in ("load", "compute", "ideal") if name in metrics
    ]
    return ", ".join(words)


def _table(records: Sequence[Record], names: Names) -> Table:
    columns: list[Heading] = [
        "Network",
        Column("Schedule", quick=True),
        Column("Weights", quick=True, hint="where they are when a pass begins"),
        Column("Devices", "number"),
        Column("Time", "number", hint="of an iteration"),
        Column("Interval", "number", hint=INTERVAL_HINT),
        Column("Rate", "number"),
        Column("I/O", "number", hint="loading all phases, with nothing beside it"),
        Column("Compute", "number", hint="computing all phases, with nothing beside it"),
        Column("Ideal", "number", hint="sum over phases of the longer of both"),
        Column("Efficiency", "number", hint="ideal over time"),
        Column("Hidden", "number", hint="share of the loading while something computed"),
        Column("Of sequential", "number", hint="times as long as loading and computing in turn"),
        Column("Working memory", "number"),
        Column("Peak memory", "number", hint="by which the process grew while the network was opened and ran a step"),
        Column("Predicted", "number", hint="by the calibrated machine"),
    ]
    base = {
        (whatever_schedule(r.case).key, str(r.conditions.get("storage"))): r.metrics["time"].value
        for r in records
        if r.case.params.get("schedule") == "sequential"
    }
    rows = [_row(record, names, base) for record in records]
    return Table(columns, rows, "Every case")


def _row(record: Record, names: Names, base: dict[tuple[str, str], float]) -> Row:
    metrics, found = record.metrics, measured(record)
    network, storage = whatever_schedule(record.case).key, str(record.conditions.get("storage", ""))
    times = {key: figure(m.value, m.unit) for key, m in metrics.items()}
    shares = {key: share(metrics[key].value) for key in ("efficiency", "hidden") if key in metrics}
    sequential, predicted = base.get((network, storage)), record.predicted.get("time")
    ratio = metrics["time"].value / sequential if sequential else None
    devices = int(record.case.params.get("devices", 1))
    return [
        names[network].cell,
        str(record.case.params.get("schedule", "")),
        storage,
        Cell(str(devices), devices),
        times["time"],
        share(found.relative if found else None, "± "),
        times.get("items", NONE),
        times.get("load", NONE),
        times.get("compute", NONE),
        times.get("ideal", NONE),
        shares.get("efficiency", NONE),
        shares.get("hidden", NONE),
        NONE if ratio is None else Cell(f"{ratio:.2f}x", ratio),
        times.get("working_memory", NONE),
        times.get("peak_memory", NONE),
        figure(predicted.value, "s") if predicted else NONE,
    ]
