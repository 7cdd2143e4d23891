"""Write the records of a run to a file, or read an exported run back into a store.

The suffix of the file selects the format:
  .json      all fields and raw samples; can be imported again
  .csv       one row per record with its quantiles, for a spreadsheet
  .md        a table, for a pull request or a note
  .parquet   the rows of .csv with typed columns and all values, for data frames (requires the extra `parquet`)
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal, TextIO

from tessera.axes import Option
from tessera.cli.options import LIST_RUNS_OPTION, OUTPUT_FILE_OPTION, SELECTION_OPTIONS, STORE_OPTIONS
from tessera.errors import EXIT_OK, TesseraError
from tessera.report.blocks import Cell, Column, Columns, tabulate
from tessera.report.cells import make_status_cell, make_value_cell
from tessera.report.tables import FORMAT_BY_SUFFIX, OutputFormat, write_table
from tessera.results.export import flatten_record
from tessera.results.record import Record

OUTPUT_SUFFIXES = None  # checked by the command
EPILOG = """\
examples:
  tessera export latest -o run.json                    to keep, or to compare on another machine
  tessera export nightly --feature ops -o ops.csv      one feature, for a spreadsheet
  tessera export latest -o -                           a table on the terminal
  tessera export --import run.json --as main           an exported run into this store, under another name
"""

_EXPORT_FORMATS: dict[str, OutputFormat | Literal["parquet"]] = {**FORMAT_BY_SUFFIX, ".parquet": "parquet"}


OPTIONS = (
    Option(name="run", positional="RUN", help="run: a name, latest or latest~1"),
    replace(OUTPUT_FILE_OPTION, group="", help="file to write; - is a table on the terminal"),
    *SELECTION_OPTIONS,
    Option(name="source", option="--import", metavar="FILE", help="JSON export to read into the store"),
    Option(name="new_name", option="--as", metavar="NAME", help="name of the imported run"),
    LIST_RUNS_OPTION,
    *STORE_OPTIONS,
)


def run(args: argparse.Namespace) -> int:
    if args.source is not None:
        return _import_run(args)
    if args.run is None or args.output is None:
        raise TesseraError(
            "a run and an output file are required",
            do="use `tessera export RUN -o FILE` or `tessera export --import FILE`",
        )
    if args.new_name is not None:
        raise TesseraError("--as applies only to --import")
    return _export_run(args, _get_export_format(args.output))


def _export_run(args: argparse.Namespace, output_format: OutputFormat | Literal["parquet"]) -> int:
    from tessera.report.record_tables import print_records
    from tessera.results.export import write_parquet
    from tessera.results.store import Store

    with Store(args.store, create=False) as store:
        stored = store.get_run(args.run)
        records = list(store.read_records(stored, args.feature, args.name))
    if not records:
        raise TesseraError("the run has no records that match --feature and --name", got=stored.name)
    if output_format == "parquet":
        write_parquet(args.output, records)
    else:
        print_records(stored, records, output_format, args.output, partial(_write_quantiles, title=stored.name))
    if args.output != "-":
        print(f"{len(records):,} records of {stored.name} in {args.output}", file=sys.stderr)
    return EXIT_OK


def _import_run(args: argparse.Namespace) -> int:
    from tessera.results.export import import_json
    from tessera.results.store import Store

    if args.run is not None or args.output is not None:
        raise TesseraError("--import cannot be combined with RUN or -o", do="omit RUN and -o")
    with Store(args.store) as store:
        imported = import_json(store, args.source, args.new_name)
        count = sum(store.count_statuses(imported).values())
    print(f"{count:,} records of {imported.name} in {store.path}", file=sys.stderr)
    return EXIT_OK


def _get_export_format(output: str) -> OutputFormat | Literal["parquet"]:
    """Return the export format of an output file, from its suffix; `-` is a table on the terminal."""
    if output == "-":
        return "terminal"
    if Path(output).suffix not in _EXPORT_FORMATS:
        raise TesseraError("unknown export format", got=output, allowed=[f"FILE{suffix}" for suffix in _EXPORT_FORMATS])
    return _EXPORT_FORMATS[Path(output).suffix]


def _write_quantiles(records: Sequence[Record], output_format: OutputFormat, stream: TextIO, *, title: str) -> None:
    def make_quantile_column(name: str) -> Callable[[Record], Cell]:
        return lambda record: make_value_cell(flatten_record(record)[name], record.unit)

    columns: Columns[Record] = {
        "case": lambda record: record.case.key,
        **{Column(name, "number"): make_quantile_column(name) for name in ("p25", "median", "p75")},
        Column("launches", "number"): lambda record: len(record.launches),
        "status": make_status_cell,
        "reason": lambda record: record.reason,
    }
    write_table(tabulate(columns, records, title), output_format, stream)
