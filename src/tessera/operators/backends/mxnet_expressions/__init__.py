"""How MXNet writes the operators that it has: one file per family, by the names of the catalogue.

Expressions see MXNet as `mx`, its NDArray operators as `nd`, its NumPy-like ones as `mnp` and `npx`, the inputs and
attributes by their names, and the shapes of the inputs as `shapes`. Inputs are NDArrays, or NumPy-like arrays in an
expression that says `mnp` or `npx`. An operator whose definition differs, be it only for equal or halfway values, is
not here; nor are those functions of `mx.np` that call NumPy instead of computing themselves.
"""

from __future__ import annotations

from collections.abc import Mapping

from tessera.operators.backends.mxnet_expressions import (
    arithmetic,
    composed,
    functions,
    indexing,
    layers,
    making,
    products,
    reduction,
    shaping,
)

FAMILIES = (arithmetic, functions, reduction, indexing, shaping, making, products, layers, composed)


def mxnet_expressions() -> Mapping[str, str]:
    """How MXNet writes each operator that it has."""
    return {name: expression for family in FAMILIES for name, expression in family.EXPRESSIONS.items()}
