"""Write a program of one file that repeats a stored record's case without Tessera.

A record is named by its case, or by as much of it as makes it the only one: `add`, `ops/add`, the whole key, or words
that its key has to contain.
"""

from __future__ import annotations

import argparse
from fnmatch import fnmatchcase

from tessera.cli.options import add_store
from tessera.errors import TesseraError
from tessera.launch.fresh import resolve
from tessera.report.destination import destination
from tessera.results.record import Record
from tessera.results.store import Store
from tessera.suites.features import feature

EPILOG = """\
examples:
  tessera repro add size=medium pass=forward              from the newest run, to the terminal
  tessera repro conv2d size=small pass=backward --run nightly-12 -o conv2d.py
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "record", nargs="*", metavar="WORD", help="the record: its operator, and name=value of its case"
    )
    parser.add_argument("--run", default="latest", metavar="RUN", help="the run it is in (default: latest)")
    parser.add_argument("-o", "--output", metavar="FILE", help="where to write the program (default: the terminal)")
    parser.add_argument("--operators", metavar="FILE", help="the Python file of an operator of one's own")
    add_store(parser, writes=False)


def run(args: argparse.Namespace) -> int:
    if not args.record:
        raise TesseraError("no record named", do="for example `tessera repro add size=medium pass=forward`")
    if args.operators:
        from tessera.operators import catalogue

        catalogue.load(args.operators)
    record = _one(args.store, args.run, args.record)
    compared = record.case.feature == "ab"  # operators, each against itself
    writer = feature("ops" if compared else record.case.feature).program
    if not writer:
        raise TesseraError("no program can be written for this feature", got=record.case.feature)
    text = resolve(writer)(record)
    with destination(args.output) as stream:
        stream.write(text)
    return 0


def _one(store: str | None, name: str, words: list[str]) -> Record:
    """The only record of a run that all words fit."""
    with Store(store, create=False) as opened:
        found = [record for record in opened.records(opened.run(name)) if all(_fits(record, word) for word in words)]
    if len(found) != 1:
        some = ", ".join(record.case.key for record in found[:4]) + (", …" if len(found) > 4 else "")
        what = f"{len(found)} records fit" if found else "no record fits"
        raise TesseraError(what, got=" ".join(words), allowed=some or None, do="say more of its case")
    return found[0]


def _fits(record: Record, word: str) -> bool:
    case = record.case
    name, equals, value = word.partition("=")
    if equals and "[" not in name:
        return str(case.params.get(name)) == value
    return word == case.key or fnmatchcase(case.name, word) or fnmatchcase(f"{case.feature}/{case.name}", word)
