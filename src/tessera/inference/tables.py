"""Tables of inference records (rates, latencies, memory, fraction of the peak), and a two-line text summary."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from tessera.inference.configs import list_configs, load_config
from tessera.inference.engines import ENGINES
from tessera.inference.modes.load import MODE_DESCRIPTIONS
from tessera.report.blocks import Cell, Column, Table
from tessera.report.cells import EMPTY_CELL, make_share_cell
from tessera.report.figures import format_percent, format_rate, format_seconds, format_value
from tessera.report.measured import summarize_record
from tessera.report.record_tables import RecordColumn, RecordTable, build_table, make_metric_column
from tessera.report.tables import OutputFormat, write_rows, write_table
from tessera.results.record import Record


def _make_interval_cell(record: Record) -> Cell:
    """Return the relative confidence interval of the throughput; empty for units other than images/s."""
    summary = summarize_record(record) if record.unit == "images/s" else None
    return EMPTY_CELL if summary is None or summary.relative is None else make_share_cell(summary.relative)


RATES_TABLE = RecordTable(
    columns=(
        make_metric_column("throughput", "images/s", "bare"),
        RecordColumn(heading="±", cell=_make_interval_cell, always=True),
        make_metric_column("latency_p50", "p50"),
        make_metric_column("latency_p99", "p99"),
        make_metric_column("first_batch"),
        make_metric_column("peak_memory", "memory"),
        make_metric_column("peak_device_memory", "device memory"),
        make_metric_column("cpu_utilisation"),
        make_metric_column("peak_fraction"),
        make_metric_column("efficiency", "scaling"),
        make_metric_column("energy_per_image", "energy"),
        make_metric_column("device_energy_per_image", "device energy"),
        make_metric_column("top1_agreement"),
    ),
    name="network",
    title="{name}",
)
# Columns of the tables of operators and layers, after the name.
OPERATOR_COLUMNS = ("calls", "time", "share", "FLOP", "bytes", "of roofline")


def build_choices_table() -> Table:
    """Build the table of all configs, engines and modes."""
    rows = [["config", name, load_config(name).title] for name in list_configs()]
    rows += [["engine", name, str(entry.find_missing() or entry.title)] for name, entry in ENGINES.items()]
    rows += [["mode", name, text] for name, text in MODE_DESCRIPTIONS.items()]
    return Table(["kind", "name", "what"], rows)


def write_inference_records(
    records: Sequence[Record], output_format: OutputFormat, stream: TextIO, *, top: int
) -> None:
    """Write the table of rates, the tables of operators (`top` layers), notes and the summary of a single case."""
    whole = [record for record in records if not record.case.params.get("by_operator")]
    if whole:
        write_rates_table(whole, output_format, stream)
        stream.write("\n" if output_format == "markdown" else "")
    for record in records:
        if record.case.params.get("by_operator"):
            write_operator_tables(record, output_format, stream, top)
    if output_format == "terminal":
        for note in dict.fromkeys(note for record in records for note in record.notes):
            stream.write(f"- {note}\n")
        if len(records) == 1:
            stream.writelines(f"{line}\n" for line in format_summary(records[0]))


def write_rates_table(records: Sequence[Record], output_format: OutputFormat, stream: TextIO) -> None:
    """Write a table of rates and latencies with one line per case."""
    write_table(build_table(records, RATES_TABLE), output_format, stream)


def write_operator_tables(record: Record, output_format: OutputFormat, stream: TextIO, top: int) -> None:
    """Write two tables of a `--by-operator` record: time by kind of operator, and the slowest layers."""
    for what, heading in (("kinds", "operator"), ("layers", "layer")):
        shares: Sequence[Mapping[str, Any]] = record.details.get(what, ())
        shown = shares if what == "kinds" else shares[:top]
        columns = [Column(heading), *(Column(name, "number") for name in OPERATOR_COLUMNS)]
        title = f"{record.case.name} by {heading}" + (
            f", {len(shown)} of {len(shares)}" if len(shown) < len(shares) else ""
        )
        write_rows(columns, [_format_operator(share) for share in shown], output_format, stream, title)
        if output_format == "markdown":
            stream.write("\n")


def _format_operator(share: Mapping[str, Any]) -> list[str]:
    flops, moved, roofline = share["flops"], share["moved"], share["roofline"]
    return [
        str(share["name"]),
        str(share["calls"]),
        format_seconds(share["seconds"]),
        format_percent(share["share"]),
        "" if not flops else format_rate(flops, "FLOP"),
        "" if not moved else format_value(moved, "B"),
        "" if roofline is None else format_percent(roofline),
    ]


def format_summary(record: Record) -> list[str]:
    """Format throughput and latency in the output format of the IPU benchmarks, for scripts that parse it."""
    rates = [value for launch in record.launches for value in launch.values]
    if record.unit != "images/s" or not rates or "latency_mean" not in record.metrics:
        return []
    spread = statistics.stdev(rates) if len(rates) > 1 else 0.0
    least, mean, most = (record.metrics[f"latency_{name}"].value * 1e3 for name in ("min", "mean", "max"))
    return [
        f"throughput: {statistics.mean(rates):.2f} samples/sec (mean) "
        f"(min: {min(rates):.2f}, max: {max(rates):.2f}, std: {spread:.2f})",
        f"latency avg: {mean:.2f} ms (mean) (min: {least:.2f}, max: {most:.2f})",
    ]
