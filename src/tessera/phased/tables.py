"""Terminal tables of phased execution: the cases, the phases of a pass, and the balance of I/O and compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from tessera.phased.advise import format_advice, get_measured_balance, list_balances
from tessera.phased.cases import CHAIN
from tessera.phased.profile.page import PHASE_HEADINGS, format_phase_row
from tessera.phased.profile.pass_profile import get_profile
from tessera.phased.profile.picture import describe_pass
from tessera.report.blocks import Column
from tessera.report.figures import format_bytes, format_rate
from tessera.report.naming import name_cases
from tessera.report.record_tables import RecordTable, build_table, make_metric_column, make_time_columns
from tessera.report.tables import OutputFormat, write_rows, write_table
from tessera.results.record import Record

CASE_TABLE = RecordTable(
    columns=(
        *make_time_columns("s/iter."),
        make_metric_column("time", "predicted", predicted=True),
        make_metric_column("items"),
        make_metric_column("load"),
        make_metric_column("compute"),
        make_metric_column("ideal"),
        make_metric_column("efficiency", format="whole percent"),
        make_metric_column("hidden", format="whole percent"),
        make_metric_column("bandwidth", "stream"),
        make_metric_column("peak_memory", "memory"),
    ),
    name="network",
    title="phases {name}",
)
MAX_PRINTED_ITERATIONS = 10  # number of iterations printed
MAX_PRINTED_PHASES = 8  # the phases of a single case are listed up to this number, or with --profile


def write_phases(
    records: Sequence[Record], output_format: OutputFormat, stream: TextIO, *, advise: bool, profile: bool
) -> None:
    """Write the table of the cases, the phases of a single case (with `profile`, of every case), and the advice."""
    write_table(build_table(records, CASE_TABLE), output_format, stream)
    done = [record for record in records if record.status == "ok"]
    for record in done:
        phases = record.metrics["phases"].value
        if profile or (len(done) == 1 and phases <= MAX_PRINTED_PHASES):
            _print_phase_table(record, output_format, stream)
    if output_format == "terminal" and len(done) == 1:
        stream.writelines(f"{line}\n" for line in format_iterations(done[0]))
        stream.writelines(f"- {note}\n" for note in done[0].notes)
    if advise:
        _print_advice(done, output_format, stream)


def _print_phase_table(record: Record, output_format: OutputFormat, stream: TextIO) -> None:
    profile = get_profile(record)
    if profile is None:
        return
    columns = [
        Column(title, "text" if title in ("phase", "layers", "bound by") else "number") for title in PHASE_HEADINGS
    ]
    table = [format_phase_row(profile, number) for number in range(len(profile.phases))]
    filled = [n for n in range(len(PHASE_HEADINGS)) if any(row[n] for row in table)]
    rows = [[row[n] for n in filled] for row in table]
    write_rows(
        [columns[n] for n in filled],
        rows,
        output_format,
        stream,
        f"{record.case.params['schedule']}: {describe_pass(profile)}",
    )


def format_iterations(record: Record) -> list[str]:
    """Return lines with FLOPs per byte loaded, time of each iteration, and working memory."""
    lines, metrics = [], record.metrics
    if "flops_per_byte" in metrics:
        per_byte, batches = metrics["flops_per_byte"].value, int(record.case.params["batches_per_step"])
        which = "for each phase " if record.case.name == CHAIN else ""
        each = f" ({per_byte / batches:.0f} for each of {batches} mini-batches)" if batches > 1 else ""
        lines.append(f"FLOPs / byte loaded {which}from Streaming Memory: {per_byte:.0f}{each}")
    if record.values:
        items = metrics["items"].value * metrics["time"].value
        shown, more = record.values[:MAX_PRINTED_ITERATIONS], len(record.values) - MAX_PRINTED_ITERATIONS
        lines += [f"{seconds:.4g} s/iter. {items / seconds:.4g} items/s." for seconds in shown]
        lines += [f"and {more} more iterations; --json lists all"] if more > 0 else []
    working, weights = (format_bytes(metrics[name].value) for name in ("working_memory", "weights"))
    lines.append(f"working memory: {working} for {weights} of weights")
    return lines


def _print_advice(records: Sequence[Record], output_format: OutputFormat, stream: TextIO) -> None:
    columns = [
        Column("machine"),
        Column("compute", "number"),
        Column("stream", "number"),
        Column("FLOPs / byte needed", "number"),
        Column("source"),
    ]
    rows = [
        [
            balance.machine,
            format_rate(balance.flops, "FLOP/s"),
            format_rate(balance.bandwidth, "B/s"),
            f"{balance.flops_per_byte:,.0f}",
            balance.source,
        ]
        for balance in list_balances(records)
    ]
    write_rows(
        columns, rows, output_format, stream, "balance: FLOPs per byte at which loading and computing take equally long"
    )
    names = name_cases([record.case for record in records])
    for record in records:
        if get_measured_balance(record) is None:
            continue
        if len(records) > 1:
            stream.write(f"{names[record.case.key].words}\n")
        stream.writelines(f"{'  ' * (len(records) > 1)}{line}\n" for line in format_advice(record))
