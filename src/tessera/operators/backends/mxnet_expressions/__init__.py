"""MXNet expressions (Python source of each operator), by the operator's name in the catalogue.

An expression may use MXNet as `mx`, its NDArray operators as `nd`, its NumPy-like operators as `mnp` and `npx`, inputs
and attributes by their names, and the shapes of the inputs as `shapes`. Inputs are NDArrays, or NumPy-like arrays in an
expression that uses `mnp` or `npx`. Excluded are operators that MXNet defines differently from torch, even if only for
ties in sorting or rounding, and functions of `mx.np` that call NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping

from tessera.operators.backends.mxnet_expressions import data_movement, functions, layers


def list_mxnet_expressions() -> Mapping[str, str]:
    """Return the MXNet expressions of all operators that MXNet supports, by operator name."""
    return {**functions.EXPRESSIONS, **data_movement.EXPRESSIONS, **layers.EXPRESSIONS}
