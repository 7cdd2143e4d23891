"""Tables of halo records: times against their limits, what is hidden, and the verdict of every rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TextIO

from tessera.cli.records_table import print_records
from tessera.report.destination import destination
from tessera.report.figures import format_bytes, format_percent, format_value
from tessera.report.generic import split_params
from tessera.report.measured import measured
from tessera.report.tables import Column, Form, render
from tessera.results.record import Case, Record
from tessera.results.run import Run
from tessera.spatial.bench.problem import Problem, ways
from tessera.spatial.network_cost import link_table

# headings and metrics, in the order in which a reader asks for them
FIGURES = {
    "exchange": (
        ("bytes", "bytes"),
        ("neighbours", "neighbours"),
        ("p90", "p90"),
        ("p99", "p99"),
        ("copy", "copy"),
        ("per neighbour", "per_neighbour"),
        ("rate", "bandwidth"),
    ),
    "compute": (
        ("exchange", "exchange"),
        ("convolution", "convolution"),
        ("sequential", "sequential"),
        ("hidden", "hidden"),
        ("uncut", "uncut"),
        ("efficiency", "efficiency"),
        ("compute", "gflops"),
    ),
    "validate": (
        ("pixels", "error_pixels"),
        ("output", "error_output"),
        ("input gradient", "error_input_gradient"),
        ("weight gradient", "error_weight_gradient"),
        ("bias gradient", "error_bias_gradient"),
        ("allowed", "tolerance"),
    ),
}
SHARES = ("hidden", "efficiency")


def print_cases(found: Sequence[Case], form: Form, output: str | None) -> int:
    """The cases by their keys."""
    with destination(output) as stream:
        render([Column("case")], [[case.key] for case in found], form, stream)
    return 0


def print_halo(run: Run, records: Sequence[Record], form: Form, output: str | None) -> None:
    """Print the records of one benchmark in the form asked for; JSON and CSV are those of every command."""
    if form in ("json", "csv"):
        print_records(run, records, form, output)
        return
    with destination(output) as stream:
        halo_table(records, form, stream)
        if form == "terminal":
            _verdicts(records, stream)
            if len(records) == 1 and records[0].status == "ok":
                _links(records[0], stream)
                stream.writelines(f"- {note}\n" for note in records[0].notes if not note.startswith("Validation"))


def halo_table(records: Sequence[Record], form: Form, stream: TextIO) -> None:
    """One line per case; where transport or layout was left to choose, what was chosen stands in its place."""
    varying, fixed = split_params([_as_chosen(record) for record in records])
    name = records[0].case.name
    figures = [(head, metric) for head, metric in FIGURES[name] if any(metric in r.metrics for r in records)]
    if all(record.metrics["neighbours"].value < 2 for record in records if "neighbours" in record.metrics):
        figures = [(head, metric) for head, metric in figures if metric not in ("neighbours", "per_neighbour")]
    timed = name != "validate"
    predicted = any("time" in record.predicted for record in records)
    columns = [
        *(Column(axis.replace("_", " ")) for axis in varying),
        *([Column("time", "right"), Column("±", "right")] if timed else []),
        *([Column("predicted", "right")] if predicted else []),
        *(Column(head, "right") for head, _ in figures),
        Column("status"),
    ]
    rows = [
        [
            *(_as_chosen(record).params.get(axis, "") for axis in varying),
            *(_time(record) if timed else ()),
            *([_figure(record, "time", predicted=True)] if predicted else []),
            *(_figure(record, metric) for _, metric in figures),
            record.status.replace("_", " "),
        ]
        for record in records
    ]
    said = ", ".join(f"{axis.replace('_', ' ')} {value}" for axis, value in fixed.items())
    render(columns, rows, form, stream, f"halo {name}: {said}")


def _as_chosen(record: Record) -> Case:
    chosen = {axis: record.conditions[axis] for axis in ("transport", "layout") if axis in record.conditions}
    return replace(record.case, params={k: _word(v) for k, v in {**record.case.params, **chosen}.items()})


def _word(value: object) -> str:
    """A parameter as it is typed: sizes as 37x61, words with commas."""
    if not isinstance(value, list):
        return str(value)
    return ("x" if all(isinstance(one, int) for one in value) else ",").join(map(str, value))


def _time(record: Record) -> tuple[str, str]:
    found = measured(record)
    if found is None:
        return "", ""
    return format_value(found.median, record.unit), format_percent(
        found.relative
    ) if found.relative is not None else "?"


def _figure(record: Record, name: str, *, predicted: bool = False) -> str:
    metric = (record.predicted if predicted else record.metrics).get(name)
    if metric is None:
        return ""
    if name in SHARES:
        low, high = (record.metrics.get(f"{name}_{end}") for end in ("low", "high"))
        known = f" ± {(high.value - low.value) / 2:.0%}" if low and high else ""
        return f"{metric.value:.0%}{known}"
    if name == "neighbours":
        return str(round(metric.value))
    if name.startswith(("error", "tolerance")):
        return f"{metric.value:.1e}" if metric.value else "0"
    return format_value(metric.value, metric.unit)


def _verdicts(records: Sequence[Record], stream: TextIO) -> None:
    """What every rank of a validation says, under its case where there are several."""
    for record in records:
        lines = [note for note in record.notes if note.startswith("Validation")]
        if lines and len(records) > 1:
            stream.write(f"{record.case.key}\n")
        stream.writelines(f"{line}\n" for line in lines)


def _links(record: Record, stream: TextIO) -> None:
    """Who sent how much to whom, and how fast that makes each link."""
    if record.case.name != "exchange" or "time" not in record.metrics:
        return
    problem, took = Problem.of(record.case.params), record.metrics["time"].value / ways(record.case.params)
    rows = [
        [str(source), str(target), format_bytes(moved), format_value(moved / took / 1e9, "GB/s")]
        for source, target, _, moved in link_table(problem.plan(), problem.pixel_bytes)
    ]
    if rows:
        columns = [Column("from"), Column("to"), Column("bytes", "right"), Column("rate", "right")]
        render(columns, rows, "terminal", stream, title="per neighbour")
