"""Indexing: reading values by index, and writing into a copy or in place.

Indices of writes are unique, so that the result does not depend on the order of the writes. Indices of additions
repeat, as in the gradient of an embedding. Values that are added in place are tiny, so that the buffer does not
overflow over any number of calls.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tessera.operators.catalogue.families import (
    MATRIX_SIDES,
    NO_GRADIENT,
    WIDE_DTYPES,
    Sizes,
    define_family,
    make_square,
)
from tessera.operators.draws import Draw, booleans, distinct_integers, half_zero, integers, normal, uniform
from tessera.operators.operator import (
    Input,
    Operator,
    OperatorCall,
    count_copy_bytes,
    count_no_bytes,
    count_per_input,
    make_sizes,
)

SMALLEST_DIM = "min(shapes['data'])"  # upper bound of indices that are valid in every dim


_define_indexing = define_family("indexing", backward_bytes=1.0)


# a selection by index: it reads the index, and reads and writes only the selected values
_define_pick = partial(_define_indexing, moved=lambda call: call.read["index"] + count_copy_bytes(call))
_define_view = partial(_define_indexing, moved=count_no_bytes)
# an operator that finds the non-zero values of `data`
_define_search = partial(_define_indexing, sizes=make_square(half_zero), **NO_GRADIENT)

_FULL_INDEX_INPUTS = make_sizes(
    lambda n: {"data": Input((n, n)), "index": Input((n, n), integers(SMALLEST_DIM), "int64")}, *MATRIX_SIDES
)
_HALF_INDEX_INPUTS = make_sizes(
    lambda n: {"data": Input((n, n)), "index": Input((n // 2,), integers(SMALLEST_DIM), "int64")}, *MATRIX_SIDES
)
_POINT_INPUTS = make_sizes(
    lambda n: {
        "data": Input((n, n)),
        "rows": Input((n * n // 4,), integers(SMALLEST_DIM), "int64"),
        "index": Input((n * n // 4,), integers(SMALLEST_DIM), "int64"),
    },
    *MATRIX_SIDES,
)
_FLAT_INDEX_INPUTS = make_sizes(
    lambda n: {"data": Input((n, n)), "index": Input((n * n // 4,), integers("np.prod(shapes['data'])"), "int64")},
    *MATRIX_SIDES,
)
_MASK_INPUTS = make_sizes(lambda n: {"data": Input((n, n)), "mask": Input((n, n), booleans, "bool")}, *MATRIX_SIDES)
_WHERE_INPUTS = make_sizes(
    lambda n: {"condition": Input((n, n), booleans, "bool"), "lhs": Input((n, n)), "rhs": Input((n, n))}, *MATRIX_SIDES
)
_CLASS_INDEX_INPUTS = make_sizes(lambda n: {"index": Input((n,), integers(n), "int64")}, 2**12, 2**20, 2**24)

DIM_0 = {"dim": 0}
DIM_1 = {"dim": 1}
_GATHER_EXPRESSIONS = ("torch.gather(data, dim, index)", "np.take_along_axis(data, index, dim)", _FULL_INDEX_INPUTS)
_SELECT_EXPRESSIONS = ("torch.index_select(data, dim, index)", "np.take(data, index, dim)", _HALF_INDEX_INPUTS)

_READ_OPERATORS = (
    _define_indexing("gather", *_GATHER_EXPRESSIONS, attributes=DIM_1),
    _define_indexing("gather_rows", *_GATHER_EXPRESSIONS, attributes=DIM_0),
    _define_indexing("take_along_dim", reference="np.take_along_axis", sizes=_FULL_INDEX_INPUTS, attributes=DIM_1),
    _define_pick("index_select", *_SELECT_EXPRESSIONS, attributes=DIM_0),
    _define_pick("index_select_cols", *_SELECT_EXPRESSIONS, attributes=DIM_1),
    _define_pick("index_rows", "data[index]", "data[index]", _HALF_INDEX_INPUTS),
    _define_pick("index_cols", "data[:, index]", "data[:, index]", _HALF_INDEX_INPUTS),
    _define_pick("index_points", "data[rows, index]", "data[rows, index]", _POINT_INPUTS),
    _define_pick("take", sizes=_FLAT_INDEX_INPUTS),
    _define_indexing("where", sizes=_WHERE_INPUTS),
    _define_search(
        "nonzero_static", "torch.nonzero_static(data, size=data.numel(), fill_value=-1)", "ref.nonzero_static"
    ),
    _define_indexing("masked_select", reference="data[mask]", sizes=_MASK_INPUTS),
    _define_indexing("boolean_mask", "data[mask]", "data[mask]", _MASK_INPUTS),
    _define_search("nonzero", reference="np.argwhere"),
    _define_search("nonzero_tuple", "torch.nonzero(data, as_tuple=True)", "np.nonzero"),
    _define_search("argwhere"),
    _define_indexing(
        "unravel_index",
        sizes=_CLASS_INDEX_INPUTS,
        attributes=lambda shapes: {"shape": (64, -(-shapes["index"][0] // 64))},
        **NO_GRADIENT,
    ),
    _define_view("select", reference="np.take(data, index, dim)", attributes={"dim": 1, "index": 3}),
    _define_view(
        "narrow",
        "torch.narrow(data, 1, start, length)",
        "data[:, start : start + length]",
        attributes=lambda shapes: {"start": 1, "length": shapes["data"][1] // 2},
    ),
    _define_view("slice", "data[1:-1, 1:-1]", "data[1:-1, 1:-1]"),
    _define_view("slice_strided", "data[::2, ::2]", "data[::2, ::2]"),
    _define_view("diagonal", attributes={"offset": 1}),
)

TINY_VALUES = uniform(-1e-3, 1e-3)


def _make_distinct_values_draw(dim: int, offset: float) -> Draw:
    """Return a draw of randomly ordered values 1/1024 apart along `dim`; `offset` (0 to 1) separates two draws."""
    return Draw(f"(rng.random(shape).argsort({dim}) + {offset} - shape[{dim}] / 2) / 1024")


def _define_write(
    name: str, arguments: str, reference: str, sizes: Sizes, *, function: str = "", **rest: Any
) -> Operator:
    """Define an operator that writes into a copy of `data`; `arguments` follow `data` in the call of torch."""
    return _define_indexing(name, f"torch.{function or name}(data, {arguments})", reference, sizes, **rest)


def _define_inplace(
    name: str, arguments: str, reference: str, sizes: Sizes, *, torch: str = "", **rest: Any
) -> Operator:
    """Define an in-place operator, which reads the index and the source and writes only the indexed values."""

    def count_moved_bytes(call: OperatorCall) -> float:
        index = sum(nbytes for input_name, nbytes in call.read.items() if input_name in ("index", "mask"))
        source = sum(nbytes for input_name, nbytes in call.read.items() if input_name == "source")
        return index + 2.0 * (source or call.read["data"] / 2)

    settings: dict[str, Any] = {"aliases": (f"{name}_",), "moved": count_moved_bytes, **NO_GRADIENT, **rest}
    return _define_indexing(f"inplace_{name}", torch or f"data.{name}_({arguments})", reference, sizes, **settings)


_define_sum = partial(_define_write, flops=count_per_input("source"))
_define_inplace_sum = partial(_define_inplace, flops=count_per_input("source"))


def _make_inputs(
    index: Callable[[int], Draw] | None = None,
    source: Draw | None = None,
    divisors: tuple[int, ...] = (1, 1),
    *,
    index_divisors: tuple[int, ...] | None = None,
    mask: bool = False,
    data: Draw = normal,
) -> Sizes:
    """Make a square matrix `data` of side n and, if given, `index` and `source`, and a `mask` of the matrix.

    The dims of `source` and `index` are n divided by `divisors`; `index_divisors` sets other dims of `index`.
    """

    def build_inputs(n: int) -> dict[str, Input]:
        shape = tuple(n // divisor for divisor in divisors)
        inputs = {"data": Input((n, n), data)}
        if index is not None:
            dims = shape if index_divisors is None else tuple(n // divisor for divisor in index_divisors)
            inputs["index"] = Input(dims, index(n), "int64")
        if mask:
            inputs["mask"] = Input((n, n), booleans, "bool")
        if source is not None:
            inputs["source"] = Input(shape, source)
        return inputs

    return make_sizes(build_inputs, *MATRIX_SIDES)


def _make_rows_to_write(index: Callable[[int], Draw], source: Draw = normal, data: Draw = normal) -> Sizes:
    """Make an n x n matrix `data`, and n / 2 rows `source` to write at the row numbers `index`."""
    return _make_inputs(index, source, (2, 1), index_divisors=(2,), data=data)


_SCATTER_INPUTS = _make_inputs(distinct_integers, normal, divisors=(1, 2))
_ADD_INPUTS = _make_inputs(integers, normal)
_FILL_INPUTS = _make_inputs(distinct_integers, divisors=(2,))
_MASKED_MATRIX_INPUTS = _make_inputs(mask=True)
_MASKED_SOURCE_INPUTS = _make_inputs(source=normal, mask=True)
_ROW_INPUTS = _make_inputs(source=normal, divisors=(1,))
_UPPER_HALF_INPUTS = _make_inputs(source=normal, divisors=(2, 1))
_PUT_INPUTS = make_sizes(
    lambda n: {
        "data": Input((n, n)),
        "index": Input((n * n // 4,), distinct_integers(n * n), "int64"),
        "source": Input((n * n // 4,)),
    },
    64,
    1024,
    2048,
)

# reference expressions that an operator and its in-place variant share
_SCATTER_REFERENCE = "ref.write_at(data, ref.index_along(index, dim), source)"
_SCATTER_ADD_REFERENCE = "ref.add_at(data, ref.index_along(index, dim), source)"
_COPY_ROWS_REFERENCE = "ref.write_at(data, index, source)"
_ADD_ROWS_REFERENCE = "ref.add_at(data, index, source)"
_FILL_ROWS_REFERENCE = "ref.write_at(data, index, value)"
_COPY_MASKED_REFERENCE = "ref.write_at(data, mask, source.ravel()[: mask.sum()])"

_FILL_VALUE = {"value": 0.5}

_WRITE_OPERATORS = (
    # into a copy
    _define_write("scatter", "dim, index, source", _SCATTER_REFERENCE, _SCATTER_INPUTS, attributes=DIM_1),
    _define_write(
        "scatter_value",
        "dim, index, value",
        "ref.write_at(data, ref.index_along(index, dim), value)",
        _make_inputs(distinct_integers, divisors=(1, 2)),
        attributes={"dim": 1, "value": 0.5},
        function="scatter",
    ),
    _define_write("index_copy", "0, index, source", _COPY_ROWS_REFERENCE, _make_rows_to_write(distinct_integers)),
    _define_write("index_fill", "0, index, value", _FILL_ROWS_REFERENCE, _FILL_INPUTS, attributes=_FILL_VALUE),
    _define_write("index_put", "(index,), source", _COPY_ROWS_REFERENCE, _make_rows_to_write(distinct_integers)),
    _define_write("put", "index, source", "ref.write_at(data.ravel(), index, source).reshape(data.shape)", _PUT_INPUTS),
    _define_write(
        "masked_fill", "mask, value", "np.where(mask, value, data)", _MASKED_MATRIX_INPUTS, attributes=_FILL_VALUE
    ),
    _define_write("masked_scatter", "mask, source", _COPY_MASKED_REFERENCE, _MASKED_SOURCE_INPUTS),
    _define_write(
        "slice_scatter",
        "source, 0, start, end",
        "ref.write_at(data, np.s_[start:end], source)",
        _UPPER_HALF_INPUTS,
        attributes=lambda shapes: {"start": 0, "end": shapes["source"][0]},
    ),
    _define_write(
        "select_scatter",
        "source, 1, index",
        "ref.write_at(data, np.s_[:, index], source)",
        _ROW_INPUTS,
        attributes={"index": 3},
    ),
    _define_write(
        "diagonal_scatter", "source", "ref.write_at(data, np.diag_indices(len(source)), source)", _ROW_INPUTS
    ),
    # not differentiable here: torch 2.13 returns a wrong gradient of the data, as torch's own gradcheck reports
    _define_write(
        "as_strided_scatter",
        "source, source.shape, (2 * data.shape[1], 1)",
        "ref.write_at(data, np.s_[::2], source)",
        _UPPER_HALF_INPUTS,
        **NO_GRADIENT,
    ),
    # adding and reducing into a copy
    _define_sum("scatter_add", "dim, index, source", _SCATTER_ADD_REFERENCE, _ADD_INPUTS, attributes=DIM_1),
    _define_sum(
        "scatter_add_rows",
        "dim, index, source",
        _SCATTER_ADD_REFERENCE,
        _ADD_INPUTS,
        attributes=DIM_0,
        function="scatter_add",
    ),
    _define_sum(
        "scatter_reduce_amax",
        "dim, index, source, 'amax'",
        "ref.maximum_at(data, ref.index_along(index, dim), source)",
        _make_inputs(integers, _make_distinct_values_draw(1, 0), data=_make_distinct_values_draw(1, 0.5)),
        attributes=DIM_1,
        **WIDE_DTYPES,
        function="scatter_reduce",
    ),
    _define_sum(
        "scatter_reduce_mean",
        "dim, index, source, 'mean'",
        "ref.mean_at(data, ref.index_along(index, dim), source)",
        _ADD_INPUTS,
        attributes=DIM_1,
        function="scatter_reduce",
    ),
    _define_sum("index_add", "0, index, source", _ADD_ROWS_REFERENCE, _make_rows_to_write(integers)),
    _define_sum(
        "index_put_accumulate",
        "(index,), source, accumulate=True",
        _ADD_ROWS_REFERENCE,
        _make_rows_to_write(integers),
        function="index_put",
    ),
    _define_sum(
        "index_reduce_amax",
        "0, index, source, 'amax'",
        "ref.maximum_at",
        _make_rows_to_write(integers, _make_distinct_values_draw(0, 0), _make_distinct_values_draw(0, 0.5)),
        **WIDE_DTYPES,
        function="index_reduce",
    ),
    # in place
    _define_inplace("scatter", "dim, index, source", _SCATTER_REFERENCE, _SCATTER_INPUTS, attributes=DIM_1),
    _define_inplace_sum(
        "scatter_add",
        "dim, index, source",
        _SCATTER_ADD_REFERENCE,
        _make_inputs(integers, TINY_VALUES),
        attributes=DIM_1,
    ),
    _define_inplace("index_copy", "0, index, source", _COPY_ROWS_REFERENCE, _make_rows_to_write(distinct_integers)),
    _define_inplace("index_fill", "0, index, value", _FILL_ROWS_REFERENCE, _FILL_INPUTS, attributes=_FILL_VALUE),
    _define_inplace("index_put", "(index,), source", _COPY_ROWS_REFERENCE, _make_rows_to_write(distinct_integers)),
    _define_inplace(
        "setitem",
        "",
        "(data.__setitem__(index, source), data)[1]",
        _make_rows_to_write(distinct_integers),
        torch="(data.__setitem__(index, source), data)[1]",
        aliases=("setitem",),
    ),
    _define_inplace_sum(
        "index_add", "0, index, source", _ADD_ROWS_REFERENCE, _make_rows_to_write(integers, TINY_VALUES)
    ),
    _define_inplace(
        "masked_fill", "mask, value", "ref.write_at(data, mask, value)", _MASKED_MATRIX_INPUTS, attributes=_FILL_VALUE
    ),
    _define_inplace("masked_scatter", "mask, source", _COPY_MASKED_REFERENCE, _MASKED_SOURCE_INPUTS),
    _define_inplace(
        "put", "index, source", "ref.write_at(data.ravel(), index, source).reshape(data.shape)", _PUT_INPUTS
    ),
    _define_inplace(
        "fill_diagonal",
        "value",
        "ref.write_at(data, np.diag_indices(len(data)), value)",
        make_square(),
        attributes=_FILL_VALUE,
        moved=lambda call: call.written[0] / call.outputs[0][0],
    ),
)

OPERATORS = (*_READ_OPERATORS, *_WRITE_OPERATORS)
