"""The operators' section of the report: single cases or categories, then sizes, backends, fusion and history."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from tessera.operators.section.backends import build_backends_section
from tessera.operators.section.categories import build_categories_section, get_backend, select_main_backend
from tessera.operators.section.fused import build_fused_section
from tessera.operators.section.plots import build_launch_plot, build_rate_plot
from tessera.operators.section.scaling import build_scaling_section
from tessera.report.blocks import Block, Card, Cards, Column, Heading, Row, Section, Table, Text
from tessera.report.cells import EMPTY_CELL, make_share_cell, make_value_cell
from tessera.report.feature_section import build_record_table
from tessera.report.figures import format_percent
from tessera.report.history_page import build_history_blocks
from tessera.report.measured import INTERVAL_HINT, summarize_record
from tessera.report.naming import name_cases_of_runs
from tessera.report.plots import MAX_CASE_ROWS, plot_medians
from tessera.report.record_tables import split_params
from tessera.report.runs import RunView
from tessera.results.changepoints import MIN_RUNS
from tessera.results.history import build_history
from tessera.results.observation import read_metric
from tessera.results.record import Record

# With more runs than this, only the history shows all runs; the other parts show the newest run.
MAX_SHOWN_RUNS = 2


def build_section(runs: Sequence[RunView]) -> Section:
    """Build the section for the operator cases of some runs."""
    shown = runs if len(runs) <= MAX_SHOWN_RUNS else runs[-1:]
    cases = [record.case for run in shown for record in run.records]
    varying, fixed = split_params(cases) if cases else ([], {})
    intro = "Single operators: time of one call, its compute and memory rates, and their uncertainty."
    if fixed:
        intro += " In all cases: " + ", ".join(f"{name} = {value}" for name, value in fixed.items()) + "."
    blocks: list[Block] = []
    if len(runs) > MAX_SHOWN_RUNS:
        blocks.append(
            Text(f"Only the newest of {len(runs)} runs is shown: `{shown[-1].name}`. The history shows all of them.")
        )
    if len({case.key for case in cases}) > MAX_CASE_ROWS:
        blocks += [_build_cards(shown[-1]), build_categories_section(shown), build_slowest_table(shown[-1])]
    else:
        rates = (
            build_rate_plot(shown, varying, "gflops", "GFLOP/s"),
            build_rate_plot(shown, varying, "bandwidth", "GB/s"),
        )
        plots = (*plot_medians(shown, varying), *rates, build_launch_plot(shown, varying))
        blocks += [plot for plot in plots if plot]
    records = shown[-1].records
    parts = (
        build_scaling_section(records),
        build_backends_section(records),
        build_fused_section(records),
        build_history_section(runs),
    )
    blocks += [part for part in parts if part]
    if cases:
        blocks.append(Section("All records", "", [build_record_table(shown)]))
    return Section("Operators", intro, blocks)


def _build_cards(run: RunView) -> Cards:
    """Build the four summary values of the newest run."""
    ok = [record for record in run.records if record.status == "ok"]
    shares = [r.metrics["roofline"].value for r in select_main_backend(ok) if "roofline" in r.metrics]
    backends = dict.fromkeys(get_backend(record.case) for record in run.records)
    middle = format_percent(statistics.median(shares)) if shares else "unknown"
    remark = "of the calibrated machine" if shares else "`tessera doctor --calibrate`"
    return Cards(
        [
            Card("Operators", f"{len({record.case.name for record in run.records}):,}", "by name"),
            Card("Cases", f"{len(ok):,}", f"measured of {len(run.records):,}"),
            Card("Backends", f"{len(backends):,}", ", ".join(backends)),
            Card("Median share of roofline", middle, remark.replace("`", "")),
        ]
    )


MAX_SLOWEST_ROWS = 20


def build_slowest_table(run: RunView) -> Table:
    """Build the table of the cases with the longest times."""
    names = name_cases_of_runs([run])
    timed = [record for record in run.records if record.status == "ok" and "time" in record.metrics]
    slowest = sorted(timed, key=lambda record: -record.metrics["time"].value)[:MAX_SLOWEST_ROWS]
    columns: list[Heading] = [
        "Case",
        Column("Time", "number"),
        Column("Interval", "number", hint=INTERVAL_HINT),
        Column("Roofline", "number", hint="predicted time of the calibrated machine over the measured time"),
        Column("Excess time", "number", hint="measured time minus the predicted time of the calibrated machine"),
    ]
    rows: list[Row] = [[names[record.case.key].cell, *_format_slowest(record)] for record in slowest]
    return Table(columns, rows, f"The {len(rows)} slowest cases")


def _format_slowest(record: Record) -> Row:
    measurement, seconds = summarize_record(record), record.metrics["time"].value
    roofline, predicted = record.metrics.get("roofline"), record.predicted.get("time")
    return [
        make_value_cell(seconds, "s"),
        make_share_cell(measurement.relative if measurement else None, "± "),
        make_share_cell(roofline.value) if roofline else EMPTY_CELL,
        make_value_cell(seconds - predicted.value, "s") if predicted else EMPTY_CELL,
    ]


MIN_HISTORY_RUNS = 3  # fewer runs are compared side by side instead


def build_history_section(runs: Sequence[RunView]) -> Section | None:
    """Build the section with the time of every case in each run; None for fewer than three runs."""
    if len(runs) < MIN_HISTORY_RUNS:
        return None
    readings = [
        read_metric(record, "time", run=run.name, started=run.created) for run in runs for record in run.records
    ]
    cases_over_time = build_history(readings, "time")
    if not cases_over_time.series:
        return None
    intro = f"The time of each case over {len(cases_over_time.runs)} runs. Each dot is a run and each line a level."
    if len(cases_over_time.runs) < MIN_RUNS:
        intro += f" It takes {MIN_RUNS} runs to tell a change from noise."
    return Section("History", intro, build_history_blocks(cases_over_time))
