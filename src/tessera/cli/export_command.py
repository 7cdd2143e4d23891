"""Write the records of a run to a file, or read an exported run back into a store.

The suffix of the file chooses the form:
  .json      everything, raw samples included; can be imported again, record for record
  .csv       one row per record with its quantiles, for a spreadsheet
  .md        a table to read, for a pull request or a note
  .parquet   the rows of .csv with typed columns and all values, for data frames (needs the extra `parquet`)
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Literal

from tessera.cli.options import add_store
from tessera.errors import OK, TesseraError
from tessera.report.figures import format_value
from tessera.report.tables import SUFFIXES, Column, Form, render
from tessera.results.flat import flat
from tessera.results.record import Record

EPILOG = """\
examples:
  tessera export latest -o run.json                    to keep, or to compare on another machine
  tessera export nightly --feature ops -o ops.csv      one feature, for a spreadsheet
  tessera export latest -o -                           a table on the terminal
  tessera export --import run.json --as main           an exported run into this store, under another name
"""

_FORMS: dict[str, Form | Literal["parquet"]] = {**SUFFIXES, ".parquet": "parquet"}
_READABLE = (
    Column("case"),
    Column("p25", "right"),
    Column("median", "right"),
    Column("p75", "right"),
    Column("launches", "right"),
    Column("status"),
    Column("reason"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="RUN", help="the run: its name, latest, latest~1")
    parser.add_argument("-o", "--output", metavar="FILE", help="the file to write; - is a table on the terminal")
    parser.add_argument("--feature", metavar="F", help="only the records of this feature, e.g. ops")
    parser.add_argument("--name", dest="glob", metavar="GLOB", help="only cases whose name fits, e.g. 'conv*'")
    parser.add_argument("--import", dest="source", metavar="FILE", help="read this JSON export into the store")
    parser.add_argument("--as", dest="new_name", metavar="NAME", help="the name of the imported run")
    parser.add_argument("--list", action="store_true", help="list the runs and end")
    add_store(parser, writes=False)


def run(args: argparse.Namespace) -> int:
    if args.list:
        from tessera.cli.list_command import print_listing

        return print_listing("runs", "terminal", args.output, args.store)
    if args.source is not None:
        return _import(args)
    if args.name is None or args.output is None:
        raise TesseraError("what to export, and where to?", do="`tessera export RUN -o FILE`, or --import FILE")
    if args.new_name is not None:
        raise TesseraError("--as names an imported run", do="use it with --import")
    return _export(args, _form(args.output))


def _export(args: argparse.Namespace, form: Form | Literal["parquet"]) -> int:
    from tessera.cli.records_table import write_records
    from tessera.report.destination import destination
    from tessera.results.export import write_parquet
    from tessera.results.store import Store

    with Store(args.store, create=False) as store:
        found = store.run(args.name)
        records = list(store.records(found, args.feature, args.glob))
    if not records:
        raise TesseraError("the run has no such records", got=found.name)
    if form == "parquet":
        write_parquet(args.output, records)
    else:
        with destination(args.output) as stream:
            if form in ("json", "csv"):
                write_records(found, records, form, stream)
            else:
                render(_READABLE, [_readable(record) for record in records], form, stream, title=found.name)
    if args.output != "-":
        print(f"{len(records):,} records of {found.name} in {args.output}", file=sys.stderr)
    return OK


def _import(args: argparse.Namespace) -> int:
    from tessera.results.export import import_json
    from tessera.results.store import Store

    if args.name is not None or args.output is not None:
        raise TesseraError("one thing at a time: export or import", do="give --import FILE alone")
    with Store(args.store) as store:
        imported = import_json(store, args.source, args.new_name)
        count = sum(store.counts(imported).values())
    print(f"{count:,} records of {imported.name} in {store.path}", file=sys.stderr)
    return OK


def _form(output: str) -> Form | Literal["parquet"]:
    if output == "-":
        return "terminal"
    if Path(output).suffix not in _FORMS:
        raise TesseraError("unknown form of export", got=output, allowed=[f"FILE{suffix}" for suffix in _FORMS])
    return _FORMS[Path(output).suffix]


def _readable(record: Record) -> tuple[str, ...]:
    row = flat(record)
    quantiles = (row[name] for name in ("p25", "median", "p75"))
    status = record.status.replace("_", " ")
    return (
        record.case.key,
        *("" if value is None else format_value(value, record.unit) for value in quantiles),
        str(len(record.launches)),
        status,
        record.reason,
    )
