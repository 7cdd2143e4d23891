"""Lists of operators: those of the catalogue, of torch's OpInfo database, and the calls of a network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tessera.cli.list_command import Listing
from tessera.operators.backends import BACKENDS, expressions
from tessera.operators.operator import Input, Operator
from tessera.report.tables import Column
from tessera.results.record import Case


def catalogue_listing(operators: Iterable[Operator]) -> Listing:
    """Operators with their category, the backends that have them, and what they are given."""
    columns = [Column("name"), Column("category"), Column("backends"), Column("medium input")]
    return columns, [
        [
            operator.name,
            operator.category,
            [name for name in BACKENDS if operator.name in expressions(name)],
            ", ".join(f"{name} {'x'.join(map(str, one.shape))}" for name, one in _usual(operator).items()),
        ]
        for operator in operators
    ]


def _usual(operator: Operator) -> Mapping[str, Input]:
    """The medium inputs; an operator of a user may have other sizes alone."""
    return operator.sizes.get("medium") or next(iter(operator.sizes.values()), {})


def opinfo_listing(patterns: Sequence[str]) -> Listing:
    """Entries of torch's own database, and what each is a variant of."""
    from tessera.operators.sources import opinfo
    from tessera.operators.sources.opinfo_index import index

    columns = [Column("name"), Column("operator"), Column("differentiates"), Column("dtype")]
    found = [(name, index()[name]) for name in opinfo.find(patterns)]
    return columns, [
        [name, entry.operator, "yes" if entry.differentiable else "no", entry.dtype or "as asked for"]
        for name, entry in found
    ]


def calls_listing(calls: Sequence[Case]) -> Listing:
    """The distinct operator calls of a network, in the order in which it makes them."""
    from tessera.operators.sources.model import described

    columns = [Column("operator"), Column("arguments"), *map(Column, ("dtype", "pass")), Column("calls", "right")]
    told = ("dtype", "pass", "calls")
    return columns, [[case.name, described(case), *(case.params[name] for name in told)] for case in calls]
