"""List operators, backends, models, machines, suites, launchers, transports or runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tessera.axes import Option
from tessera.cli.options import OUTPUT_OPTIONS, STORE_OPTIONS
from tessera.errors import EXIT_OK, TesseraError
from tessera.report.blocks import Column, Columns, Heading, Table, tabulate
from tessera.report.tables import OutputFormat, print_table
from tessera.results.record import Case

if TYPE_CHECKING:
    from tessera.operators.operator import Input, Operator

MAX_COVERING_NAMES = 3  # number of covering operators that the coverage table names on the terminal
EPILOG = """\
examples:
  tessera list ops              operators with their categories
  tessera list ops --coverage   operators of torch, with the reason for those not covered
  tessera list backends         frameworks, and how to install missing ones
  tessera list transports       transports between ranks, and which of them work here
  tessera list runs             runs in the store
  tessera list models --json
"""


def run(args: argparse.Namespace) -> int:
    if args.kind is None or args.list:
        kinds = Table(["kind", "what"], [[name, text] for name, (text, _) in LISTINGS.items()])
        return print_list(kinds, args.output_format, args.output)
    if args.coverage:
        if args.kind != "ops":
            raise TesseraError("--coverage applies only to ops", got=args.kind)
        return print_list(_list_coverage(args.output_format), args.output_format, args.output)
    return print_listing(args.kind, args.output_format, args.output, args.store)


def print_listing(kind: str, output_format: OutputFormat, output: str | None, store: str | None = None) -> int:
    """Print the list of a kind, one of the names in `LISTINGS`."""
    return print_list(_list_runs(store) if kind == "runs" else LISTINGS[kind][1](), output_format, output)


def print_list(table: Table, output_format: OutputFormat, output: str | None) -> int:
    """Print a list; a cell with several values is a JSON array, or joined by commas."""
    if output_format != "json":
        rows = [[", ".join(cell) if isinstance(cell, list) else cell for cell in row] for row in table.rows]
        table = Table(table.columns, rows)
    print_table(table, output_format, output)
    return EXIT_OK


def _list_ops() -> Table:
    from tessera.operators.catalogue import OPERATORS

    return list_catalogue(OPERATORS.values())


def _list_backends() -> Table:
    from tessera.operators.backends import BACKENDS, check_usable, load_expressions

    def explain_usable(name: str) -> str:
        try:
            check_usable(name)
        except TesseraError as error:
            return str(error)
        return "yes"

    columns: Columns[str] = {
        "name": str,
        "what": lambda name: BACKENDS[name].title,
        Column("operators", "number"): lambda name: len(load_expressions(name)),
        "usable": explain_usable,
    }
    return tabulate(columns, BACKENDS)


def _list_coverage(output_format: OutputFormat) -> Table:
    """Return the table of torch's operators; on the terminal, only the first operators that cover each are named."""
    from tessera.operators.coverage import compute_coverage

    def format_names(names: Sequence[str]) -> str | list[str]:
        if output_format != "terminal":
            return list(names)
        hidden = len(names) - MAX_COVERING_NAMES
        return ", ".join(names[:MAX_COVERING_NAMES]) + (f" and {hidden} more" if hidden > 0 else "")

    headings = ["torch operator", "covered", "by", "reason, or the operator that covers it"]
    return Table(headings, [[row.name, row.status, format_names(row.by), row.reason] for row in compute_coverage()])


def _list_models() -> Table:
    from tessera.models import MODELS

    return Table(["name", "what"], [[name, entry.description] for name, entry in MODELS.items()])


def _list_machines() -> Table:
    from tessera.machine import load_machines
    from tessera.measure.environment import compute_host_fingerprint, describe_environment
    from tessera.report.figures import format_bytes

    rows = [
        [name, m.title, f"{m.workers.rows}x{m.workers.cols} {m.worker}", format_bytes(m.local_memory)]
        for name, m in load_machines(compute_host_fingerprint(describe_environment())).items()
    ]
    return Table(["name", "title", Column("workers", "number"), Column("memory per worker", "number")], rows)


def _list_suites() -> Table:
    from tessera.suites.suite import list_suites, load_suite

    suites = [load_suite(name) for name in list_suites()]
    columns: list[Heading] = ["name", "title", Column("cases", "number"), Column("launches", "number")]
    return Table(columns, [[suite.name, suite.title, len(suite.cases), suite.launches] for suite in suites])


def _list_launchers() -> Table:
    from tessera.launch.commands import list_launchers

    rows = [[each.name, "yes" if each.usable else "no", each.description] for each in list_launchers()]
    return Table(["name", "usable", "method, or the reason"], rows)


def _list_transports() -> Table:
    from tessera.transport.registry import list_transports

    rows = [[each.name, each.title, "yes" if each.usable else "no", each.detail] for each in list_transports()]
    return Table(["name", "what", "usable", "method, or the reason"], rows)


def _list_runs(store: str | None = None) -> Table:
    from tessera.results.store import Store

    with Store(store, create=False) as opened:
        rows = [
            [run.name, run.started, run.finished or "not yet", sum(opened.count_statuses(run).values()), run.command]
            for run in opened.list_runs()
        ]
    return Table(["name", "started", "finished", Column("records", "number"), "command"], rows)


# Kind -> description, and the function that makes the list.
LISTINGS: dict[str, tuple[str, Callable[[], Table]]] = {
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


def list_catalogue(operators: Iterable[Operator]) -> Table:
    """Return a table of operators with category, backends and inputs of size medium."""
    from tessera.operators.backends import BACKENDS, load_expressions

    columns: Columns[Operator] = {
        "name": lambda operator: operator.name,
        "category": lambda operator: operator.category,
        "backends": lambda operator: [name for name in BACKENDS if operator.name in load_expressions(name)],
        "medium input": lambda operator: ", ".join(
            f"{name} {'x'.join(map(str, one.shape))}" for name, one in _get_medium_inputs(operator).items()
        ),
    }
    return tabulate(columns, operators)


def _get_medium_inputs(operator: Operator) -> Mapping[str, Input]:
    """Return the inputs of an operator at size medium, or at its first size if it has no medium size."""
    return operator.sizes.get("medium") or next(iter(operator.sizes.values()), {})


def list_opinfo(patterns: Sequence[str]) -> Table:
    """Return a table of entries of torch's OpInfo database, with the operator of each entry."""
    from tessera.operators.sources import opinfo
    from tessera.operators.sources.opinfo_index import load_index

    index = load_index()
    columns: Columns[str] = {
        "name": str,
        "operator": lambda name: index[name].operator,
        "differentiates": lambda name: "yes" if index[name].differentiable else "no",
        "dtype": lambda name: index[name].dtype or "any",
    }
    return tabulate(columns, opinfo.find_entries(patterns))


def list_calls(calls: Sequence[Case]) -> Table:
    """Return a table of the distinct operator calls of a network, in order of first occurrence."""
    from tessera.operators.sources.model import describe_arguments

    rows = [
        [case.name, describe_arguments(case), *(case.params[name] for name in ("dtype", "pass", "calls"))]
        for case in calls
    ]
    return Table(["operator", "arguments", "dtype", "pass", Column("calls", "number")], rows)
