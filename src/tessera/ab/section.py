"""The table of an A/B comparison, for terminal and report: the times of both sides, their ratio and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TextIO

from tessera.report.blocks import Block, Cell, Column, Section, Table, Tone
from tessera.report.figures import format_percent, format_seconds
from tessera.report.record_tables import format_param, split_params
from tessera.report.runs import RunView
from tessera.report.tables import OutputFormat, write_table
from tessera.results.record import Record

INTRO = (
    "Two interpreters or environments, interleaved on the same core. B / A is the ratio of the times. "
    "A change is reported if the interval excludes 1 and the ratio is beyond the threshold. "
    "The last column is the smallest change that the interval could have detected."
)
RESULT_COLUMNS = [
    Column("A", "number"),
    Column("B", "number"),
    Column("B / A", "number"),
    Column("interval", "number"),
    Column("verdict", quick=True),
    Column("smallest detectable", "number"),
]
_GATE_HEADINGS = {
    "A": Column("base", "number"),
    "B": Column("head", "number"),
    "B / A": Column("head / base", "number"),
}
VERDICT_TONES: dict[str, Tone] = {"faster": "good", "slower": "bad", "unresolved": "warn"}


def build_section(runs: Sequence[RunView]) -> Section:
    """Build the section of the report: one table per run and pair of sides (section hook)."""
    tables: list[Block] = []
    for run in runs:
        pairs: dict[tuple[str, str], list[Record]] = {}
        for record in run.records:
            pairs.setdefault(_get_sides(record), []).append(record)
        for sides, records in pairs.items():
            if "gated_feature" in records[0].details:
                table = build_gate_table(records, *sides)
            else:
                table = build_table(records, format_sides(*sides))
            tables.append(table if len(runs) == 1 else replace(table, caption=f"{run.name}: {table.caption}"))
    return Section("A/B comparison", INTRO, tables)


def format_sides(a: str, b: str) -> str:
    """Format the labels of both sides as one line.

    >>> format_sides("this", "this OMP_NUM_THREADS=2")
    'A: this   B: this OMP_NUM_THREADS=2'
    """
    return f"A: {a}   B: {b}"


def build_gate_table(records: Sequence[Record], base: str, head: str) -> Table:
    """Build the table of a gate, whose cases may belong to several features: one row per case."""
    cases = [record.case.without("base", "head") for record in records]
    varying, _ = split_params(cases)
    columns = [Column("case"), *(_GATE_HEADINGS.get(column.title, column) for column in RESULT_COLUMNS)]
    rows: list[list[str | Cell]] = []
    for record, case in zip(records, cases, strict=True):
        values = ",".join(f"{name}={format_param(case.params[name])}" for name in varying if name in case.params)
        rows.append([f"{case.name}[{values}]" if values else case.name, *_build_result_cells(record)])
    return Table(columns, rows, f"head: {head}   base: {base}")


def _get_sides(record: Record) -> tuple[str, str]:
    """Return the labels of both sides: A and B, or base and head of a gate."""
    params = record.case.params
    first, second = ("base", "head") if "gated_feature" in record.details else ("a", "b")
    return str(params[first]), str(params[second])


def build_table(records: Sequence[Record], title: str) -> Table:
    """Build the table of a comparison: one row per case."""
    params = _choose_params(records)
    columns = [Column("operator"), *map(Column, params), *RESULT_COLUMNS]
    return Table(columns, [_build_row(record, params) for record in records], title)


def write_comparison(records: Sequence[Record], output_format: OutputFormat, stream: TextIO) -> None:
    """Write the table of one pair of sides; on the terminal also the reason of every case without a result."""
    params = records[0].case.params
    write_table(build_table(records, format_sides(params["a"], params["b"])), output_format, stream)
    if output_format == "terminal":
        stream.writelines(f"{r.status}: {r.case.key}: {r.reason}\n" for r in records if r.status != "ok")


def _choose_params(records: Sequence[Record]) -> list[str]:
    """Return the case parameters with a column: size, pass, dtype; device if given; backend and fusion if they vary."""
    optional = {name: {record.case.params.get(name) for record in records} for name in ("backend", "fusion")}
    device = ["device"] if any("device" in record.case.params for record in records) else []
    return ["size", "pass", "dtype", *device, *(name for name, values in optional.items() if len(values) > 1)]


def _build_row(record: Record, params: Sequence[str]) -> list[str | Cell]:
    return [
        record.case.name,
        *(str(record.case.params.get(name, "")) for name in params),
        *_build_result_cells(record),
    ]


def _build_result_cells(record: Record) -> list[str | Cell]:
    value = {name: metric.value for name, metric in record.metrics.items()}
    if record.status != "ok":
        return ["", "", "", "", record.status.replace("_", " "), ""]
    verdict = record.verdict or ""
    return [
        Cell(format_seconds(value["time_a"]), value["time_a"]),
        Cell(format_seconds(value["time_b"]), value["time_b"]),
        Cell(f"{value['ratio']:.4f}", value["ratio"]),
        f"{value['low']:.4f} to {value['high']:.4f}",
        Cell(verdict, tone=VERDICT_TONES.get(verdict, "")),
        Cell(format_percent(value["smallest"]), value["smallest"]),
    ]
