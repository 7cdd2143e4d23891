"""What there is: runs, operators, models, machines, suites, launchers, transports."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from tessera.cli.options import add_output, add_store
from tessera.errors import TesseraError
from tessera.report.destination import destination
from tessera.report.tables import Column, Form, render

EPILOG = """\
examples:
  tessera list ops              operators with their categories
  tessera list ops --coverage   what of torch is covered, and why the rest is not
  tessera list backends         frameworks, and how to get those that are missing
  tessera list transports       how ranks exchange borders here
  tessera list runs             what is in the store
  tessera list models --json
"""

Listing = tuple[list[Column], list[list[Any]]]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="?", choices=tuple(LISTINGS), help="what to list (default: all kinds)")
    parser.add_argument("--list", action="store_true", help="list the kinds of things and end")
    parser.add_argument("--quick", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--coverage", action="store_true", help="of ops: every public operator of torch, covered by what or why not"
    )
    add_store(parser, writes=False)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    if args.what is None or args.list:
        kinds: Listing = ([Column("kind"), Column("what")], [[k, f.__doc__] for k, f in LISTINGS.items()])
        return print_rows(kinds, args.form, args.output)
    if args.coverage:
        if args.what != "ops":
            raise TesseraError("--coverage is of operators", got=args.what, allowed="ops")
        return print_rows(_coverage(), args.form, args.output)
    return print_listing(args.what, args.form, args.output, args.store)


def print_listing(what: str, form: Form, output: str | None, store: str | None = None) -> int:
    return print_rows(LISTINGS[what](store), form, output)


def print_rows(listing: Listing, form: Form, output: str | None) -> int:
    columns, rows = listing
    if form != "json":
        rows = [[", ".join(cell) if isinstance(cell, list) else cell for cell in row] for row in rows]
    with destination(output) as stream:
        render(columns, rows, form, stream)
    return 0


def _ops(store: str | None) -> Listing:
    """operators"""
    from tessera.cli.ops_listing import catalogue_listing
    from tessera.operators.catalogue import OPERATORS

    return catalogue_listing(OPERATORS.values())


def _backends(store: str | None) -> Listing:
    """frameworks that operators run on, and how to get those that are missing"""
    from tessera.operators.backends import BACKENDS, check_usable, expressions

    columns = [Column("name"), Column("what"), Column("operators", "right"), Column("usable")]
    rows = []
    for name, entry in BACKENDS.items():
        try:
            check_usable(name)
            usable = "yes"
        except TesseraError as error:
            usable = str(error)
        rows.append([name, entry.title, len(expressions(name)), usable])
    return columns, rows


def _coverage() -> Listing:
    from tessera.operators.coverage import coverage

    columns = [Column("torch operator"), Column("covered"), Column("by"), Column("why not, or of what a form")]
    return columns, [[row.name, row.status, list(row.by), row.reason] for row in coverage()]


def _models(store: str | None) -> Listing:
    """networks of the registry"""
    from tessera.models import MODELS

    return [Column("name"), Column("what")], [[name, entry.description] for name, entry in MODELS.items()]


def _machines(store: str | None) -> Listing:
    """described machines, and this host when calibrated"""
    from tessera.machine import machines
    from tessera.measure.environment import environment, host_fingerprint

    columns = [
        Column("name"),
        Column("title"),
        Column("workers", "right"),
        Column("memory per worker", "right"),
    ]
    from tessera.report.figures import format_bytes

    found = machines(host_fingerprint(environment()))
    return columns, [
        [name, m.title, f"{m.workers.rows}x{m.workers.cols} {m.worker}", format_bytes(m.local_memory)]
        for name, m in found.items()
    ]


def _suites(store: str | None) -> Listing:
    """suites that come with Tessera"""
    from tessera.suites.suite import load_suite, suite_names

    columns = [Column("name"), Column("title"), Column("cases", "right"), Column("launches", "right")]
    suites = [load_suite(name) for name in suite_names()]
    return columns, [[s.name, s.title, len(s.cases), s.launches] for s in suites]


def _launchers(store: str | None) -> Listing:
    """ways to start workers here, and why one cannot be used"""
    from tessera.launch.spawns import launchers

    columns = [Column("name"), Column("usable"), Column("how, or why not")]
    return columns, [[found.name, "yes" if found.usable else "no", found.how] for found in launchers()]


def _transports(store: str | None) -> Listing:
    """ways for ranks to exchange borders, and why one cannot be used"""
    from tessera.transport.choose import usable

    columns = [Column("name"), Column("what"), Column("usable"), Column("how, or why not")]
    return columns, [[found.name, found.title, "yes" if found.usable else "no", found.how] for found in usable()]


def _runs(store: str | None) -> Listing:
    """runs in the store"""
    from tessera.results.store import Store

    columns = [
        Column("name"),
        Column("started"),
        Column("finished"),
        Column("records", "right"),
        Column("command"),
    ]
    with Store(store, create=False) as opened:
        return columns, [
            [r.name, r.started, r.finished or "not yet", sum(opened.counts(r).values()), r.command]
            for r in opened.runs()
        ]


LISTINGS: dict[str, Callable[[str | None], Listing]] = {
    "ops": _ops,
    "backends": _backends,
    "models": _models,
    "machines": _machines,
    "suites": _suites,
    "launchers": _launchers,
    "transports": _transports,
    "runs": _runs,
}
