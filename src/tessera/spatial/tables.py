"""Tables of halo records: measured and predicted times, the hidden share of an exchange, and verdicts of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from tessera.report.blocks import Column
from tessera.report.figures import format_bytes, format_value
from tessera.report.record_tables import RecordTable, build_table, make_metric_column, make_time_columns
from tessera.report.tables import OutputFormat, write_rows, write_table
from tessera.results.record import Record
from tessera.spatial.cost import list_links
from tessera.spatial.problem import HaloProblem, count_directions

TABLES = {
    "exchange": (
        *make_time_columns(),
        make_metric_column("time", "predicted", predicted=True),
        make_metric_column("bytes"),
        make_metric_column("neighbours"),
        make_metric_column("p90"),
        make_metric_column("p99"),
        make_metric_column("copy"),
        make_metric_column("per_neighbour"),
        make_metric_column("bandwidth", "rate"),
    ),
    "compute": (
        *make_time_columns(),
        make_metric_column("time", "predicted", predicted=True),
        make_metric_column("exchange"),
        make_metric_column("convolution"),
        make_metric_column("sequential"),
        make_metric_column("hidden", format="whole percent", bounds=True),
        make_metric_column("uncut"),
        make_metric_column("efficiency", format="whole percent", bounds=True),
        make_metric_column("gflops", "compute"),
    ),
    "network": (
        *make_time_columns(),
        make_metric_column("uncut"),
        make_metric_column("efficiency", format="whole percent", bounds=True),
        make_metric_column("bytes"),
        make_metric_column("error_output", "output"),
        make_metric_column("error_weight_gradient", "weight gradient"),
        make_metric_column("tolerance"),
    ),
    "validate": (
        make_metric_column("error_pixels", "pixels"),
        make_metric_column("error_output", "output"),
        make_metric_column("error_input_gradient", "input gradient"),
        make_metric_column("error_weight_gradient", "weight gradient"),
        make_metric_column("error_bias_gradient", "bias gradient"),
        make_metric_column("tolerance"),
    ),
}
PER_NEIGHBOUR = ("neighbours", "per neighbour")  # columns shown only for two or more neighbours


def write_halo(records: Sequence[Record], output_format: OutputFormat, stream: TextIO) -> None:
    """Write the table of one halo benchmark; on the terminal also verdicts, links and notes."""
    write_halo_table(records, output_format, stream)
    if output_format == "terminal":
        _write_verdicts(records, stream)
        if len(records) == 1 and records[0].status == "ok":
            _write_links(records[0], stream)
            stream.writelines(f"- {note}\n" for note in records[0].notes)


def write_halo_table(records: Sequence[Record], output_format: OutputFormat, stream: TextIO) -> None:
    """Write a table with one line per case. For `auto`, the chosen transport or layout is shown."""
    columns = TABLES[records[0].case.name]
    if all(record.metrics["neighbours"].value < 2 for record in records if "neighbours" in record.metrics):
        columns = tuple(column for column in columns if column.heading not in PER_NEIGHBOUR)
    write_table(
        build_table(records, RecordTable(columns=columns, title="halo {name}", as_run=True)), output_format, stream
    )


def _write_verdicts(records: Sequence[Record], stream: TextIO) -> None:
    """Write the validation verdict of every rank, under the name of the case if there are several cases."""
    for record in records:
        lines = [verdict["text"] for verdict in record.details.get("rank_verdicts", ())]
        if lines and len(records) > 1:
            stream.write(f"{record.case.key}\n")
        stream.writelines(f"{line}\n" for line in lines)


def _write_links(record: Record, stream: TextIO) -> None:
    """Write the bytes and the bytes per second of every link of an exchange."""
    if record.case.name != "exchange" or "time" not in record.metrics:
        return
    problem = HaloProblem.of(record.case.params)
    seconds = record.metrics["time"].value / count_directions(record.case.params)
    rows = [
        [str(source), str(target), format_bytes(byte_count), format_value(byte_count / seconds / 1e9, "GB/s")]
        for source, target, _, byte_count in list_links(problem.plan(), problem.pixel_bytes)
    ]
    if rows:
        columns = [Column("from"), Column("to"), Column("bytes", "number"), Column("rate", "number")]
        write_rows(columns, rows, "terminal", stream, title="per neighbour")
