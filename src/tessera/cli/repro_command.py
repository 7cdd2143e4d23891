"""Write a standalone Python program that repeats the case of a stored record without Tessera.

Words select the record: the name of its operator (`add`, `ops/add`), parameters of its case (`size=medium`), or its
whole key. Exactly one record has to match.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from fnmatch import fnmatchcase

from tessera.axes import Option
from tessera.cli.options import OUTPUT_FILE_OPTION, STORE_OPTIONS
from tessera.errors import TesseraError
from tessera.launch.fresh import load_object
from tessera.report.tables import open_output
from tessera.results.record import Record
from tessera.results.store import Store
from tessera.suites.features import get_feature

OUTPUT_SUFFIXES = (".py",)
EPILOG = """\
examples:
  tessera repro add size=medium pass=forward              from the newest run, to the terminal
  tessera repro conv2d size=small pass=backward --run nightly-12 -o conv2d.py
"""


OPTIONS = (
    Option(
        name="record",
        positional="WORD",
        several=True,
        help="words that select the record: its operator, and NAME=VALUE of its case",
    ),
    Option(name="run", metavar="RUN", default="latest", help="run of the record"),
    replace(OUTPUT_FILE_OPTION, group="", default_text="the terminal", help="output file"),
    Option(name="operators", metavar="FILE", help="Python file that defines the operator of the record"),
    Option(
        name="allow_initializer",
        action="flag",
        help="initializers of the record that may do more than draw numbers; they are code of whoever made the record",
    ),
    *STORE_OPTIONS,
)


def run(args: argparse.Namespace) -> int:
    if not args.record:
        raise TesseraError(
            "no record is given", do="select one, for example `tessera repro add size=medium pass=forward`"
        )
    if args.operators:
        from tessera.operators import catalogue

        catalogue.load_operator_file(args.operators)
    record = _find_record(args.store, args.run, args.record)
    feature = str(record.details.get("gated_feature", record.case.feature))
    writer = get_feature(feature).program
    if not writer:
        raise TesseraError("no standalone program can be written for records of this feature", got=feature)
    text = load_object(writer)(record, allow_initializer=args.allow_initializer)
    with open_output(args.output) as stream:
        stream.write(text)
    return 0


def _find_record(store: str | None, name: str, words: list[str]) -> Record:
    """Return the only record of a run that matches all words; raise an error if none or several match."""
    with Store(store, create=False) as opened:
        records = opened.read_records(opened.get_run(name))
        matches = [record for record in records if all(_matches_word(record, word) for word in words)]
    if len(matches) != 1:
        keys = ", ".join(record.case.key for record in matches[:4]) + (", …" if len(matches) > 4 else "")
        what = f"{len(matches)} records match" if matches else "no record matches"
        raise TesseraError(what, got=" ".join(words), allowed=keys or None, do="give more parameters of the case")
    return matches[0]


def _matches_word(record: Record, word: str) -> bool:
    case = record.case
    name, equals, value = word.partition("=")
    if equals and "[" not in name:
        return str(case.params.get(name)) == value
    return word == case.key or fnmatchcase(case.name, word) or fnmatchcase(f"{case.feature}/{case.name}", word)
