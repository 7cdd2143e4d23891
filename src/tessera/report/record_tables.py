"""Tables of records, built from declarations.

A feature declares the columns of its table as data (`RecordTable`); `build_table` fills them from records, for the
terminal, Markdown and the page alike. Columns without a value in any record are left out. The parameters that vary over
the records get a column each, the others are in the title. Headings and formats come from the metric's declaration
(`results.metrics`) unless the column overrides them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TextIO

from tessera.report.blocks import Cell, Column, Table
from tessera.report.cells import (
    make_interval_cell,
    make_launches_cell,
    make_median_cell,
    make_metric_cell,
    make_status_cell,
)
from tessera.report.measured import INTERVAL_HINT
from tessera.report.tables import OutputFormat, open_output, write_rows, write_table
from tessera.results.export import EXPORT_COLUMNS, flatten_record, to_json_text
from tessera.results.metrics import MetricFormat, get_spec
from tessera.results.record import Case, Record
from tessera.results.store import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordColumn:
    """One column of a table of records: its heading, and the function that returns the cell of a record."""

    heading: str
    cell: Callable[[Record], Cell]
    kind: Literal["text", "number"] = "number"
    quick: bool = False
    hint: str = ""
    always: bool = False  # shown even if no record has a value


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordTable:
    """The declaration of a feature's table: the columns between the parameters and the status.

    `name` is the heading of the column with case names. The column is shown if the names differ, or always with
    `name_always`; `with_feature` puts the feature before the name. `title` is the title of the table, to which the
    parameters common to all records are appended; `{name}` in the title stands for their common name. With `as_run`,
    parameters such as `auto` are shown with the value that the benchmark chose.
    """

    columns: Sequence[RecordColumn]
    name: str = ""
    name_always: bool = False
    with_feature: bool = False
    title: str = ""
    as_run: bool = False


def make_metric_column(
    name: str, heading: str = "", format: MetricFormat | None = None, *, predicted: bool = False, bounds: bool = False
) -> RecordColumn:
    """Declare the column of a metric or, with `predicted`, of its prediction; `bounds` adds the ± of a fraction."""

    def cell(record: Record) -> Cell:
        return make_metric_cell(record, name, format, predicted=predicted, bounds=bounds)

    return RecordColumn(heading=heading or get_spec(name).title, cell=cell)


def make_time_columns(heading: str = "time", *, launches: bool = False) -> list[RecordColumn]:
    """Declare the columns of a record's median and its interval; `launches` adds the number of launches."""
    columns = [
        RecordColumn(heading=heading, cell=make_median_cell, always=True),
        RecordColumn(heading="±", cell=make_interval_cell, hint=INTERVAL_HINT, always=True),
    ]
    if launches:
        columns.append(RecordColumn(heading="launches", cell=make_launches_cell, always=True))
    return columns


def make_chosen_column(name: str, *, number: bool = False) -> RecordColumn:
    """Declare the column of a parameter value that the benchmark chose, such as the transport of `auto`."""

    def cell(record: Record) -> Cell:
        return Cell(format_param(record.chosen.get(name, "")))

    return RecordColumn(heading=name.replace("_", " "), cell=cell, kind="number" if number else "text", always=True)


def split_params(cases: Sequence[Case]) -> tuple[list[str], dict[str, str]]:
    """Return the names of the parameters that vary over the cases, and the constant parameters with their values."""
    names = list(dict.fromkeys(name for case in cases for name in case.params))
    # Compare as JSON, because 1 and "1" are different values.
    values = {
        name: {json.dumps(case.params[name], default=str) if name in case.params else "" for case in cases}
        for name in names
    }
    varying = [name for name in names if len(values[name]) > 1]
    return varying, {name: format_param(cases[0].params[name]) for name in names if name not in varying}


def format_param(value: Any) -> str:
    """Return a parameter as it is typed on the command line.

    >>> format_param([37, 61]), format_param(["none", "split"]), format_param(0.5)
    ('37x61', 'none,split', '0.5')
    """
    if not isinstance(value, list | tuple):
        return str(value)
    return ("x" if all(isinstance(item, int) for item in value) else ",").join(map(str, value))


def build_table(records: Sequence[Record], declared: RecordTable) -> Table:
    """Fill a declared table with records."""
    cases = [_get_case_as_run(record) if declared.as_run else record.case for record in records]
    varying, fixed = split_params(cases)
    several = len({case.name for case in cases}) > 1
    named = bool(declared.name) and (several or declared.name_always)
    cells = [(column, [column.cell(record) for record in records]) for column in declared.columns]
    shown = [
        (column, column_cells)
        for column, column_cells in cells
        if column.always or any(cell.text for cell in column_cells)
    ]
    columns = [
        *([Column(declared.name, quick=True)] if named else []),
        *(Column(name.replace("_", " ")) for name in varying),
        *(Column(column.heading, column.kind, column.quick, column.hint) for column, _ in shown),
        Column("status", quick=True),
    ]
    rows = [
        [
            *([f"{case.feature} {case.name}" if declared.with_feature else case.name] if named else []),
            *(format_param(case.params.get(name, "")) for name in varying),
            *(column_cells[index] for _, column_cells in shown),
            make_status_cell(records[index]),
        ]
        for index, case in enumerate(cases)
    ]
    title = " ".join(declared.title.format(name="" if several else cases[0].name).split())
    shared = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in fixed.items())
    return Table(columns, rows, f"{title}: {shared}" if title else shared)


def _get_case_as_run(record: Record) -> Case:
    """Return the case of a record, with the parameter values that the benchmark chose."""
    chosen = {name: value for name, value in record.chosen.items() if name in record.case.params}
    return replace(record.case, params={**record.case.params, **chosen})


# Columns (metric and heading) of the generic table, in which `suite` and `ops` list records of any feature.
_GENERIC_COLUMNS = {
    "gflops": "compute",
    "bandwidth": "memory",
    "peak_allocated": "allocated",
    **dict.fromkeys(("roofline", "unfused", "gain", "allocator_share", "efficiency", "hidden"), ""),
}


def write_records_table(
    records: Sequence[Record], output_format: OutputFormat, stream: TextIO = sys.stdout, *, metric: str = "time"
) -> None:
    """Write one table for each feature, because the parameters of features differ.

    `metric` gets a column if the table does not already contain it.
    """
    for index, feature in enumerate(dict.fromkeys(record.case.feature for record in records)):
        feature_records = [record for record in records if record.case.feature == feature]
        if index and output_format == "markdown":
            stream.write("\n")  # without a blank line, Markdown would join two tables
        timed = make_time_columns(
            "time" if all(record.unit == "s" for record in feature_records) else "figure", launches=True
        )
        extra = {} if metric in ("time", *_GENERIC_COLUMNS) else {metric: metric}
        columns = [*timed, *(make_metric_column(name, heading) for name, heading in (_GENERIC_COLUMNS | extra).items())]
        declared = RecordTable(columns=columns, name="case", name_always=True, with_feature=True)
        write_table(build_table(feature_records, declared), output_format, stream)


RecordWriter = Callable[[Sequence[Record], OutputFormat, TextIO], None]


def print_records(
    run: Run,
    records: Sequence[Record],
    output_format: OutputFormat,
    output: str | None,
    write: RecordWriter = write_records_table,
) -> None:
    """Print the records of a run: JSON (the export format, which can be read back), CSV with one unit per column, or
    the table that `write` writes for the terminal and as Markdown.
    """
    with open_output(output) as stream:
        if output_format == "json":
            stream.write(to_json_text(run, records))
        elif output_format == "csv":
            rows = [tuple(flatten_record(record).values()) for record in records]
            write_rows(list(EXPORT_COLUMNS), rows, output_format, stream)
        else:
            write(records, output_format, stream)
