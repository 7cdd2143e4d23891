"""Schedules side by side in the report: times of the same network under each schedule and weight store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.phased.choices import SCHEDULES
from tessera.report.blocks import Cell, Column, Heading, Plot, Row, Section, Table
from tessera.report.cells import EMPTY_CELL, make_share_cell, make_value_cell
from tessera.report.figures import format_seconds
from tessera.report.measured import INTERVAL_HINT, summarize_record
from tessera.report.naming import CaseNames, name_cases
from tessera.report.plots import make_row_layout, make_value_axis
from tessera.results.record import Case, Record

# Parameters that depend on the schedule, or that do not apply to all schedules.
SCHEDULE_PARAMS = ("schedule", "devices", "store", "cold", "budget", "activations", "workers")


def build_schedule_section(records: Sequence[Record]) -> Section | None:
    """Return plot and table of all cases, grouped by network; None if there are none."""
    if not records:
        return None
    intro = (
        "`sequential` loads a phase and then computes it; `overlapped` and `phased` load the next phase at the same "
        "time, in the background or on another device; `data-parallel` splits the batch; `sharded` and `resident` hold "
        "all weights in memory. An iteration passes all its mini-batches through a phase before the next phase."
    )
    names = name_cases([strip_schedule(record.case) for record in records])
    return Section("Schedules side by side", intro, [_build_plot(records, names), _build_table(records, names)])


def strip_schedule(case: Case) -> Case:
    """Return the case without its schedule: cases of the same network and batches share a row of the plot."""
    kept = {name: value for name, value in case.params.items() if name not in SCHEDULE_PARAMS}
    return Case(feature=case.feature, name=case.name, params=kept)


def is_baseline(case: Case) -> bool:
    """Return whether a case has the baseline schedule, which does not overlap loading and computing."""
    schedule = SCHEDULES.get(str(case.params.get("schedule")))
    return schedule is not None and schedule.is_baseline


def describe_variant(record: Record) -> str:
    """Return the schedule and the storage of the weights of a record, as text."""
    storage = str(record.details.get("storage", ""))
    return f"{record.case.params.get('schedule', '')}, {storage}" if storage else str(record.case.params["schedule"])


def _build_plot(records: Sequence[Record], names: CaseNames) -> Plot:
    """Return a bar plot: a row for each network, a bar for each schedule and storage."""
    labels = {record.case.key: names[strip_schedule(record.case).key].words for record in records}
    variants = list(dict.fromkeys(describe_variant(record) for record in records))
    traces: list[dict[str, Any]] = []
    for number, name in enumerate(variants):
        variant_records = [record for record in records if describe_variant(record) == name]
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": name,
                "y": [labels[record.case.key] for record in variant_records],
                "x": [record.metrics["time"].value for record in variant_records],
                "text": [_format_times(record) for record in variant_records],
                "textposition": "none",
                "hovertemplate": "%{text}<extra></extra>",
                "marker": {"color": f"var(--series-{number % 6 + 1})"},
            }
        )
    layout = make_row_layout(list(dict.fromkeys(labels.values())), len(traces), legend=len(traces) > 1)
    layout["xaxis"] = make_value_axis("s", logarithmic=False) | {"rangemode": "tozero"}
    return Plot({"data": traces, "layout": layout}, "Time of an iteration; shorter is better.")


def _format_times(record: Record) -> str:
    metrics = record.metrics
    words = [f"{describe_variant(record)}: {format_seconds(metrics['time'].value)}"]
    words += [
        f"{name} {format_seconds(metrics[name].value)}" for name in ("load", "compute", "ideal") if name in metrics
    ]
    return ", ".join(words)


def _build_table(records: Sequence[Record], names: CaseNames) -> Table:
    columns: list[Heading] = [
        "Network",
        Column("Schedule", quick=True),
        Column("Weights", quick=True, hint="storage of the weights when a pass begins"),
        Column("Devices", "number"),
        Column("Time", "number", hint="of an iteration"),
        Column("Interval", "number", hint=INTERVAL_HINT),
        Column("Rate", "number"),
        Column("I/O", "number", hint="loading all phases in isolation"),
        Column("Compute", "number", hint="computing all phases in isolation"),
        Column("Ideal", "number", hint="sum over phases of max(I/O, compute)"),
        Column("Efficiency", "number", hint="ideal over time"),
        Column("Hidden", "number", hint="share of the loading during which a device computed"),
        Column("Relative to sequential", "number", hint="time divided by the time of schedule sequential"),
        Column("Working memory", "number"),
        Column("Peak memory", "number", hint="growth of the process while the network was opened and ran a step"),
        Column("Predicted", "number", hint="by the calibrated machine"),
    ]
    base = {
        (strip_schedule(r.case).key, str(r.details.get("storage"))): r.metrics["time"].value
        for r in records
        if is_baseline(r.case)
    }
    rows = [_build_row(record, names, base) for record in records]
    return Table(columns, rows, "Every case")


def _build_row(record: Record, names: CaseNames, base: dict[tuple[str, str], float]) -> Row:
    metrics, time = record.metrics, summarize_record(record)
    network, storage = strip_schedule(record.case).key, str(record.details.get("storage", ""))
    times = {key: make_value_cell(m.value, m.unit) for key, m in metrics.items()}
    shares = {key: make_share_cell(metrics[key].value) for key in ("efficiency", "hidden") if key in metrics}
    baseline, predicted = base.get((network, storage)), record.predicted.get("time")
    ratio = metrics["time"].value / baseline if baseline else None
    devices = int(record.case.params.get("devices", 1))
    return [
        names[network].cell,
        str(record.case.params.get("schedule", "")),
        storage,
        Cell(str(devices), devices),
        times["time"],
        make_share_cell(time.relative if time else None, "± "),
        times.get("items", EMPTY_CELL),
        times.get("load", EMPTY_CELL),
        times.get("compute", EMPTY_CELL),
        times.get("ideal", EMPTY_CELL),
        shares.get("efficiency", EMPTY_CELL),
        shares.get("hidden", EMPTY_CELL),
        EMPTY_CELL if ratio is None else Cell(f"{ratio:.2f}x", ratio),
        times.get("working_memory", EMPTY_CELL),
        times.get("peak_memory", EMPTY_CELL),
        make_value_cell(predicted.value, "s") if predicted else EMPTY_CELL,
    ]
