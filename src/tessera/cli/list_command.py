"""List operators, backends, models, machines, suites, launchers, transports or runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tessera.axes import Option
from tessera.cli.options import OUTPUT_OPTIONS, STORE_OPTIONS
from tessera.errors import TesseraError
from tessera.report.blocks import Column
from tessera.report.tables import OutputFormat, open_output, write_rows
from tessera.results.record import Case

if TYPE_CHECKING:
    from tessera.operators.operator import Input, Operator

EPILOG = """\
examples:
  tessera list ops              operators with their categories
  tessera list ops --coverage   operators of torch, with the reason for those not covered
  tessera list backends         frameworks, and how to install missing ones
  tessera list transports       transports between ranks, and which of them work here
  tessera list runs             runs in the store
  tessera list models --json
"""

Listing = tuple[list[Column], list[list[Any]]]


def run(args: argparse.Namespace) -> int:
    if args.kind is None or args.list:
        kinds: Listing = ([Column("kind"), Column("what")], [[name, text] for name, (text, _) in LISTINGS.items()])
        return print_rows(kinds, args.output_format, args.output)
    if args.coverage:
        if args.kind != "ops":
            raise TesseraError("--coverage applies only to ops", got=args.kind)
        return print_rows(_list_coverage(), args.output_format, args.output)
    return print_listing(args.kind, args.output_format, args.output, args.store)


def print_listing(kind: str, output_format: OutputFormat, output: str | None, store: str | None = None) -> int:
    """Print the list of a kind, one of the names in `LISTINGS`."""
    return print_rows(LISTINGS[kind][1](store), output_format, output)


def print_rows(listing: Listing, output_format: OutputFormat, output: str | None) -> int:
    """Print the rows of a list in an output format."""
    columns, rows = listing
    if output_format != "json":
        rows = [[", ".join(cell) if isinstance(cell, list) else cell for cell in row] for row in rows]
    with open_output(output) as stream:
        write_rows(columns, rows, output_format, stream)
    return 0


def _list_ops(store: str | None) -> Listing:
    from tessera.operators.catalogue import OPERATORS

    return list_catalogue(OPERATORS.values())


def _list_backends(store: str | None) -> Listing:
    from tessera.operators.backends import BACKENDS, check_usable, load_expressions

    columns = [Column("name"), Column("what"), Column("operators", "number"), Column("usable")]
    rows = []
    for name, entry in BACKENDS.items():
        try:
            check_usable(name)
            usable = "yes"
        except TesseraError as error:
            usable = str(error)
        rows.append([name, entry.title, len(load_expressions(name)), usable])
    return columns, rows


def _list_coverage() -> Listing:
    from tessera.operators.coverage import compute_coverage

    columns = [
        Column("torch operator"),
        Column("covered"),
        Column("by"),
        Column("reason, or the operator that covers it"),
    ]
    return columns, [[row.name, row.status, list(row.by), row.reason] for row in compute_coverage()]


def _list_models(store: str | None) -> Listing:
    from tessera.models import MODELS

    return [Column("name"), Column("what")], [[name, entry.description] for name, entry in MODELS.items()]


def _list_machines(store: str | None) -> Listing:
    from tessera.machine import load_machines
    from tessera.measure.environment import compute_host_fingerprint, describe_environment

    columns = [Column("name"), Column("title"), Column("workers", "number"), Column("memory per worker", "number")]
    from tessera.report.figures import format_bytes

    return columns, [
        [name, m.title, f"{m.workers.rows}x{m.workers.cols} {m.worker}", format_bytes(m.local_memory)]
        for name, m in load_machines(compute_host_fingerprint(describe_environment())).items()
    ]


def _list_suites(store: str | None) -> Listing:
    from tessera.suites.suite import list_suites, load_suite

    columns = [Column("name"), Column("title"), Column("cases", "number"), Column("launches", "number")]
    suites = [load_suite(name) for name in list_suites()]
    return columns, [[s.name, s.title, len(s.cases), s.launches] for s in suites]


def _list_launchers(store: str | None) -> Listing:
    from tessera.launch.commands import list_launchers

    columns = [Column("name"), Column("usable"), Column("method, or the reason")]
    return columns, [[each.name, "yes" if each.usable else "no", each.description] for each in list_launchers()]


def _list_transports(store: str | None) -> Listing:
    from tessera.transport.registry import list_transports

    columns = [Column("name"), Column("what"), Column("usable"), Column("method, or the reason")]
    return columns, [[each.name, each.title, "yes" if each.usable else "no", each.detail] for each in list_transports()]


def _list_runs(store: str | None) -> Listing:
    from tessera.results.store import Store

    columns = [Column("name"), Column("started"), Column("finished"), Column("records", "number"), Column("command")]
    with Store(store, create=False) as opened:
        return columns, [
            [r.name, r.started, r.finished or "not yet", sum(opened.count_statuses(r).values()), r.command]
            for r in opened.list_runs()
        ]


# Kind -> description, and the function that makes the list; its argument is the path of the store.
LISTINGS: dict[str, tuple[str, Callable[[str | None], Listing]]] = {
    "ops": ("operators of the catalogue", _list_ops),
    "backends": ("frameworks that operators run on, and how to install missing ones", _list_backends),
    "models": ("networks", _list_models),
    "machines": ("machine descriptions, and this host if it is calibrated", _list_machines),
    "suites": ("suites that are part of Tessera", _list_suites),
    "launchers": ("launchers of workers, and which of them work here", _list_launchers),
    "transports": ("transports between ranks, and which of them work here", _list_transports),
    "runs": ("runs in the store", _list_runs),
}
OPTIONS = (
    Option(name="kind", positional="KIND", choices=tuple(LISTINGS), help="kind of list"),
    Option(name="list", action="flag", help="list of the kinds"),
    Option(name="quick", action="flag", hidden=True),
    Option(
        name="coverage",
        action="flag",
        help="with `ops`: all public operators of torch, and the reason for each that is not covered",
    ),
    *STORE_OPTIONS,
    *OUTPUT_OPTIONS,
)


def list_catalogue(operators: Iterable[Operator]) -> Listing:
    """Return a table of operators with category, backends and inputs of size medium."""
    from tessera.operators.backends import BACKENDS, load_expressions

    columns = [Column("name"), Column("category"), Column("backends"), Column("medium input")]
    return columns, [
        [
            operator.name,
            operator.category,
            [name for name in BACKENDS if operator.name in load_expressions(name)],
            ", ".join(f"{name} {'x'.join(map(str, one.shape))}" for name, one in _get_medium_inputs(operator).items()),
        ]
        for operator in operators
    ]


def _get_medium_inputs(operator: Operator) -> Mapping[str, Input]:
    """Return the inputs of an operator at size medium, or at its first size if it has no medium size."""
    return operator.sizes.get("medium") or next(iter(operator.sizes.values()), {})


def list_opinfo(patterns: Sequence[str]) -> Listing:
    """Return a table of entries of torch's OpInfo database, with the operator of each entry."""
    from tessera.operators.sources import opinfo
    from tessera.operators.sources.opinfo_index import load_index

    columns = [Column("name"), Column("operator"), Column("differentiates"), Column("dtype")]
    index = load_index()
    return columns, [
        [name, entry.operator, "yes" if entry.differentiable else "no", entry.dtype or "any"]
        for name, entry in ((name, index[name]) for name in opinfo.find_entries(patterns))
    ]


def list_calls(calls: Sequence[Case]) -> Listing:
    """Return a table of the distinct operator calls of a network, in order of first occurrence."""
    from tessera.operators.sources.model import describe_arguments

    columns = [Column("operator"), Column("arguments"), *map(Column, ("dtype", "pass")), Column("calls", "number")]
    return columns, [
        [case.name, describe_arguments(case), *(case.params[name] for name in ("dtype", "pass", "calls"))]
        for case in calls
    ]
