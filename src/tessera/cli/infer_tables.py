"""Tables of inference records: rate and latency, what a replica needs, how near the peak; and as two lines of text."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from tessera.cli.records_table import write_records
from tessera.inference.configs import config_names, load_config
from tessera.inference.engines import ENGINES
from tessera.inference.modes.load import MODES
from tessera.report.destination import destination
from tessera.report.figures import format_percent, format_rate, format_seconds, format_value
from tessera.report.generic import split_params
from tessera.report.measured import measured
from tessera.report.tables import Column, Form, render
from tessera.results.record import Case, Record
from tessera.results.run import Run

# headings and metrics, in the order in which a reader asks for them
FIGURES = (
    ("images/s", "throughput"),
    ("p50", "latency_p50"),
    ("p99", "latency_p99"),
    ("first batch", "first_batch"),
    ("memory", "peak_memory"),
    ("cores busy", "cpu_utilisation"),
    ("of peak", "peak_fraction"),
    ("scaling", "efficiency"),
    ("energy", "energy_per_image"),
    ("top-1", "top1_agreement"),
)
SHARES = ("cpu_utilisation", "peak_fraction", "efficiency", "top1_agreement")
# What the table shows of operators: headings and the values of a share.
OPERATORS = ("calls", "time", "share", "FLOP", "bytes", "of roofline")


def print_choices(form: Form, output: str | None) -> int:
    """The configs, the engines and the modes there are."""
    rows = [["config", name, load_config(name).title] for name in config_names()]
    rows += [["engine", name, entry.missing() or entry.title] for name, entry in ENGINES.items()]
    rows += [["mode", name, text] for name, text in MODES.items()]
    with destination(output) as stream:
        render([Column("kind"), Column("name"), Column("what")], rows, form, stream)
    return 0


def print_cases(found: Sequence[Case], form: Form, output: str | None) -> int:
    """The cases by their keys."""
    with destination(output) as stream:
        render([Column("case")], [[case.key] for case in found], form, stream)
    return 0


def print_inference(run: Run, records: Sequence[Record], form: Form, output: str | None, *, top: int) -> None:
    """Print the records in the form asked for; JSON and CSV are those of every command."""
    with destination(output) as stream:
        if form in ("json", "csv"):
            write_records(run, records, form, stream)
            return
        whole = [record for record in records if not record.case.params.get("by_operator")]
        if whole:
            rates_table(whole, form, stream)
            stream.write("\n" if form == "markdown" else "")
        for record in records:
            if record.case.params.get("by_operator"):
                operator_tables(record, form, stream, top)
        if form == "terminal":
            for note in dict.fromkeys(note for record in records for note in record.notes):
                stream.write(f"- {note}\n")
            if len(records) == 1:
                stream.writelines(f"{line}\n" for line in summary_lines(records[0]))


def rates_table(records: Sequence[Record], form: Form, stream: TextIO) -> None:
    """One line per case."""
    varying, fixed = split_params([record.case for record in records])
    several = len({record.case.name for record in records}) > 1
    figures = [(head, name) for head, name in FIGURES if any(name in record.metrics for record in records)]
    columns = [
        *([Column("network")] if several else []),
        *(Column(axis.replace("_", " ")) for axis in varying),
        *(column for head, name in figures for column in _columns(head, name)),
        Column("status"),
    ]
    rows = [
        [
            *([record.case.name] if several else []),
            *(str(record.case.params.get(axis, "")) for axis in varying),
            *(cell for _, name in figures for cell in _cells(record, name)),
            record.status.replace("_", " "),
        ]
        for record in records
    ]
    said = ", ".join(f"{axis.replace('_', ' ')} {value}" for axis, value in fixed.items())
    title = said if several else f"{records[0].case.name}: {said}"
    render(columns, rows, form, stream, title)


def _columns(head: str, name: str) -> list[Column]:
    return [Column(head, "right"), *([Column("±", "right")] if name == "throughput" else [])]


def _cells(record: Record, name: str) -> list[str]:
    cell = _figure(record, name)
    if name != "throughput":
        return [cell]
    found = measured(record) if record.unit == "images/s" else None
    return [cell, "" if found is None or found.relative is None else format_percent(found.relative)]


def _figure(record: Record, name: str) -> str:
    metric = record.metrics.get(name)
    if metric is None:
        return ""
    if name == "throughput":
        return format_rate(metric.value, "")
    return format_percent(metric.value) if name in SHARES else format_value(metric.value, metric.unit)


def operator_tables(record: Record, form: Form, stream: TextIO, top: int) -> None:
    """Where the time of a network goes: by kind of operator, then the layers that take most."""
    for what, heading in (("kinds", "operator"), ("layers", "layer")):
        shares: Sequence[Mapping[str, Any]] = record.conditions.get(what, ())
        shown = shares if what == "kinds" else shares[:top]
        columns = [Column(heading), *(Column(name, "right") for name in OPERATORS)]
        title = f"{record.case.name} by {heading}" + (
            f", {len(shown)} of {len(shares)}" if len(shown) < len(shares) else ""
        )
        render(columns, [_operator(share) for share in shown], form, stream, title)
        if form == "markdown":
            stream.write("\n")


def _operator(share: Mapping[str, Any]) -> list[str]:
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


def summary_lines(record: Record) -> list[str]:
    """Throughput and latency in the words of the IPU benchmarks, for scripts that read those."""
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
