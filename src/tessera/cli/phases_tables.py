"""Tables of phased execution: a line per case, the phases of a pass, and the balance of I/O and compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from tessera.cli.records_table import write_records
from tessera.phased.advise import advice_lines, balances, measured_balance
from tessera.phased.cases import CHAIN
from tessera.phased.profile.directory import profile_of
from tessera.phased.profile.picture import describe
from tessera.phased.profile.rows import HEADS, phase_row
from tessera.report.destination import destination
from tessera.report.figures import format_bytes, format_percent, format_rate, format_value
from tessera.report.generic import split_params
from tessera.report.measured import measured
from tessera.report.naming import case_names
from tessera.report.tables import Column, Form, render
from tessera.results.record import Metric, Record
from tessera.results.run import Run

# headings and metrics, in the order in which a reader asks for them
FIGURES = (
    ("rate", "items"),
    ("I/O", "load"),
    ("compute", "compute"),
    ("ideal", "ideal"),
    ("efficiency", "efficiency"),
    ("hidden", "hidden"),
    ("stream", "bandwidth"),
    ("memory", "peak_memory"),
)
SHARES = ("efficiency", "hidden")
MOST_ITERATIONS = 10  # that are printed one by one
FEW_PHASES = 8  # that are shown without being asked for


def print_phases(
    run: Run, records: Sequence[Record], form: Form, output: str | None, *, advise: bool, profile: bool
) -> None:
    """Print the records in the form asked for; JSON and CSV are those of every command."""
    with destination(output) as stream:
        if form in ("json", "csv"):
            write_records(run, records, form, stream)
            return
        _cases(records, form, stream)
        done = [record for record in records if record.status == "ok"]
        for record in done:
            phases = record.metrics["phases"].value
            if profile or (len(done) == 1 and phases <= FEW_PHASES):
                _phases(record, form, stream)
        if form == "terminal" and len(done) == 1:
            stream.writelines(f"{line}\n" for line in iteration_lines(done[0]))
            stream.writelines(f"- {note}\n" for note in done[0].notes)
        if advise:
            _advise(done, form, stream)


def _cases(records: Sequence[Record], form: Form, stream: TextIO) -> None:
    varying, fixed = split_params([record.case for record in records])
    several = len({record.case.name for record in records}) > 1
    figures = [(head, name) for head, name in FIGURES if any(name in record.metrics for record in records)]
    predicted = any("time" in record.predicted for record in records)
    columns = [
        *([Column("network")] if several else []),
        *(Column(axis.replace("_", " ")) for axis in varying),
        Column("s/iter.", "right"),
        Column("±", "right"),
        *([Column("predicted", "right")] if predicted else []),
        *(Column(head, "right") for head, _ in figures),
        Column("status"),
    ]
    rows = [
        [
            *([record.case.name] if several else []),
            *(str(record.case.params.get(axis, "")) for axis in varying),
            *_time(record),
            *([_figure(record.predicted.get("time"), "time")] if predicted else []),
            *(_figure(record.metrics.get(name), name) for _, name in figures),
            record.status.replace("_", " "),
        ]
        for record in records
    ]
    named = "" if several else f" {records[0].case.name}"
    said = ", ".join(f"{axis.replace('_', ' ')} {value}" for axis, value in fixed.items())
    render(columns, rows, form, stream, f"phases{named}: {said}")


def _time(record: Record) -> tuple[str, str]:
    found = measured(record)
    if found is None:
        return "", ""
    known = "?" if found.relative is None else format_percent(found.relative)
    return format_value(found.median, record.unit), known


def _figure(metric: Metric | None, name: str) -> str:
    if metric is None:
        return ""
    return f"{metric.value:.0%}" if name in SHARES else format_value(metric.value, metric.unit)


def _phases(record: Record, form: Form, stream: TextIO) -> None:
    profile = profile_of(record)
    if profile is None:
        return
    columns = [Column(head, "left" if head in ("phase", "layers", "bound by") else "right") for head in HEADS]
    shown = [phase_row(profile, number) for number in range(len(profile.parts))]
    kept = [n for n in range(len(HEADS)) if any(row[n] for row in shown)]
    rows = [[row[n] for n in kept] for row in shown]
    render([columns[n] for n in kept], rows, form, stream, f"{record.case.params['schedule']}: {describe(profile)}")


def iteration_lines(record: Record) -> list[str]:
    """What each iteration took, how much is computed for a byte that is loaded, and in how much memory."""
    lines, metrics = [], record.metrics
    if "flops_per_byte" in metrics:
        per_byte, batches = metrics["flops_per_byte"].value, int(record.case.params["batches_per_step"])
        which = "for each phase " if record.case.name == CHAIN else ""
        each = f" ({per_byte / batches:.0f} for each of {batches} mini-batches)" if batches > 1 else ""
        lines.append(f"FLOPs / byte loaded {which}from Streaming Memory: {per_byte:.0f}{each}")
    if record.values:
        items = metrics["items"].value * metrics["time"].value
        shown, more = record.values[:MOST_ITERATIONS], len(record.values) - MOST_ITERATIONS
        lines += [f"{seconds:.4g} s/iter. {items / seconds:.4g} items/s." for seconds in shown]
        lines += [f"and {more} more iterations; --json has them all"] if more > 0 else []
    working, weights = (format_bytes(metrics[name].value) for name in ("working_memory", "weights"))
    lines.append(f"working memory: {working} for {weights} of weights")
    return lines


def _advise(records: Sequence[Record], form: Form, stream: TextIO) -> None:
    columns = [
        Column("machine"),
        Column("compute", "right"),
        Column("stream", "right"),
        Column("FLOPs / byte needed", "right"),
        Column("from"),
    ]
    rows = [
        [one.who, format_rate(one.flops, "FLOP/s"), format_rate(one.stream, "B/s"), f"{one.needed:,.0f}", one.source]
        for one in balances(records)
    ]
    render(columns, rows, form, stream, "balance: FLOPs per byte at which loading and computing take equally long")
    names = case_names([record.case for record in records])
    for record in records:
        if measured_balance(record) is None:
            continue
        if len(records) > 1:
            stream.write(f"{names[record.case.key].short}\n")
        stream.writelines(f"{'  ' * (len(records) > 1)}{line}\n" for line in advice_lines(record))
