"""MXNet expressions (Python source of each operator), by the operator's name in the catalogue.

An expression may use MXNet as `mx`, its NDArray operators as `nd`, its NumPy-like operators as `mnp` and `npx`, inputs
and attributes by their names, and the shapes of the inputs as `shapes`. Inputs are NDArrays, or NumPy-like arrays in an
expression that uses `mnp` or `npx`. Excluded are operators that MXNet defines differently from torch, even if only for
ties in sorting or rounding, and functions of `mx.np` that call NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping

from tessera.operators.backends.mxnet_expressions import data_movement, functions, layers
from tessera.operators.catalogue import OPERATORS, share_expressions
from tessera.operators.expression import replace_modules

# operators whose NumPy reference runs in MXNet, with `mnp` for `np`
OPERATORS_WITH_REFERENCE = (
    # elementwise; of the logical operators on booleans, MXNet has only the inversion
    *("copysign", "copysign_scalar", "nan_to_num", "lcm", "atan2", "bitwise_not", "logical_not"),
    *("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_and_scalar", "bitwise_or_scalar", "bitwise_xor_scalar"),
    *("eq", "ne", "lt", "le", "gt", "ge", "eq_scalar", "ne_scalar", "lt_scalar", "le_scalar", "gt_scalar", "ge_scalar"),
    *("isnan", "isinf", "isfinite", "isposinf", "isneginf"),
    *("inplace_copysign", "inplace_nan_to_num", "inplace_clamp_min", "inplace_clamp_max", "inplace_lcm"),
    *("inplace_atan2", "inplace_pow_scalar", "inplace_logical_not", "inplace_bitwise_not", "inplace_bitwise_and"),
    *("inplace_bitwise_or", "inplace_bitwise_xor"),
    # products and linear algebra
    *("tensordot", "matmul_batched", "matmul_broadcast", "matmul_vector", "dot", "inner", "outer", "trace"),
    *("linalg_norm", "linalg_eigh", "linalg_eigvalsh", "linalg_pinv", "linalg_tensorinv", "linalg_solve"),
    "linalg_tensorsolve",
    # reductions to a scalar, because `nd` returns an array of shape (1,), and sets
    *("sum", "prod", "mean", "std", "var", "norm", "max", "min", "amax", "amin", "argmax", "argmin", "any", "all"),
    *("diff", "bincount", "bincount_weighted", "unique", "unique_counts", "unique_rows", "subtract_square_mean"),
    # data movement and creation
    *("take", "where", "nonzero_tuple", "masked_fill", "tensor_split", "movedim", "atleast_1d", "atleast_2d"),
    *("atleast_3d", "roll", "roll_flat", "tril", "diagflat", "full_like", "empty_like", "logspace"),
    *("hstack", "vstack", "dstack", "column_stack", "hsplit", "vsplit", "dsplit"),
)
# operators with the torch expression of a supported operator that MXNet cannot run
OPERATORS_NOT_IN_MXNET = (
    *("matmul_complex", "cross_entropy_probabilities", "sum_bool"),
    # integers, which were not compared with the reference there
    *("int8_add", "int8_multiply", "int32_add", "int32_multiply", "int64_add", "int64_multiply"),
)


def list_mxnet_expressions() -> Mapping[str, str]:
    """Return the MXNet expressions of all operators that MXNet supports, by operator name."""
    references = {name: replace_modules(OPERATORS[name].reference, {"np": "mnp"}) for name in OPERATORS_WITH_REFERENCE}
    own = {**references, **functions.EXPRESSIONS, **data_movement.EXPRESSIONS, **layers.EXPRESSIONS}
    return share_expressions(own, OPERATORS_NOT_IN_MXNET)
