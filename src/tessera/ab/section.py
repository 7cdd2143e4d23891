"""The table of an A/B comparison, for terminal and report: the times of both sides, their ratio and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from tessera.report.blocks import Block, Cell, Column, Section, Table, Tone
from tessera.report.figures import format_percent, format_seconds
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
VERDICT_TONES: dict[str, Tone] = {"faster": "good", "slower": "bad", "unresolved": "warn"}


def build_section(runs: Sequence[RunView]) -> Section:
    """Build the section of the report: one table per run and pair of sides (section hook)."""
    tables: list[Block] = []
    for run in runs:
        pairs: dict[tuple[str, str], list[Record]] = {}
        for record in run.records:
            pairs.setdefault((str(record.case.params["a"]), str(record.case.params["b"])), []).append(record)
        for sides, records in pairs.items():
            title = format_sides(*sides)
            tables.append(build_table(records, title if len(runs) == 1 else f"{run.name}: {title}"))
    return Section("A/B comparison", INTRO, tables)


def format_sides(a: str, b: str) -> str:
    """Format the labels of both sides as one line.

    >>> format_sides("this", "this OMP_NUM_THREADS=2")
    'A: this   B: this OMP_NUM_THREADS=2'
    """
    return f"A: {a}   B: {b}"


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
    """Return the case parameters with a column: size, pass and dtype always; backend and fusion if they vary."""
    optional = {name: {record.case.params.get(name) for record in records} for name in ("backend", "fusion")}
    return ["size", "pass", "dtype", *(name for name, values in optional.items() if len(values) > 1)]


def _build_row(record: Record, params: Sequence[str]) -> list[str | Cell]:
    value = {name: metric.value for name, metric in record.metrics.items()}
    case = [record.case.name, *(str(record.case.params.get(name, "")) for name in params)]
    if record.status != "ok":
        return [*case, "", "", "", "", record.status.replace("_", " "), ""]
    verdict = record.verdict or ""
    return [
        *case,
        Cell(format_seconds(value["time_a"]), value["time_a"]),
        Cell(format_seconds(value["time_b"]), value["time_b"]),
        Cell(f"{value['ratio']:.4f}", value["ratio"]),
        f"{value['low']:.4f} to {value['high']:.4f}",
        Cell(verdict, tone=VERDICT_TONES.get(verdict, "")),
        Cell(format_percent(value["smallest"]), value["smallest"]),
    ]
