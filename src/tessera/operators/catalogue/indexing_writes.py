"""Indexing that writes into a tensor: into a copy of it, and in place.

Places that are written to are named once each, so that the result does not depend on the order of the writes; places
that are added to are drawn with repeats, as those of an embedding's gradient are. What is added in place is tiny: the
buffer stays among normal numbers however often it is added to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tessera.operators.catalogue.elementwise import NO_GRADIENT, WIDE
from tessera.operators.catalogue.indexing import OVER_COLUMNS, OVER_ROWS
from tessera.operators.catalogue.layouts import Sizes, square
from tessera.operators.draws import Draw, booleans, integers, normal, picks, uniform
from tessera.operators.operator import Call, Input, Operator, by_size
from tessera.operators.work import per_input

TINY = uniform(-1e-3, 1e-3)


def _ranks(dim: int, offset: float) -> Draw:
    """No two values along a dim are near, nor near those of another offset: a largest one is clear."""
    return Draw(f"(rng.random(shape).argsort({dim}) + {offset} - shape[{dim}] / 2) / 1024")


def _copying(name: str, torch: str, reference: str, sizes: Sizes, **rest: Any) -> Operator:
    settings: dict[str, Any] = {"backward_bytes": 1.0, **rest}
    return Operator(name=name, category="indexing", torch=torch, reference=reference, sizes=sizes, **settings)


def _inplace(name: str, torch: str, reference: str, sizes: Sizes, **rest: Any) -> Operator:
    """What is written is read and its place is written; the rest of the data is not touched."""

    def moved(call: Call) -> float:
        index = sum(nbytes for given, nbytes in call.read.items() if given in ("index", "mask"))
        source = sum(nbytes for given, nbytes in call.read.items() if given == "source")
        return index + 2.0 * (source or call.read["data"] / 2)

    settings: dict[str, Any] = {"aliases": (f"{name}_",), "moved": moved, **NO_GRADIENT, **rest}
    return _copying(f"inplace_{name}", torch, reference, sizes, **settings)


def _inputs(
    index: Callable[[int], Draw] | None = None,
    source: Draw | None = None,
    *,
    shape: Callable[[int], tuple[int, ...]],
    mask: bool = False,
    data: Draw = normal,
) -> Sizes:
    """A square matrix `data`; an `index` and a `source`, or either, of a shape; a `mask` of the matrix's."""

    def of(n: int) -> dict[str, Input]:
        found = {"data": Input(shape=(n, n), draw=data)}
        if index is not None:
            found["index"] = Input(shape=shape(n), kind="int64", draw=index(n))
        if mask:
            found["mask"] = Input(shape=(n, n), kind="bool", draw=booleans)
        if source is not None:
            found["source"] = Input(shape=shape(n), draw=source)
        return found

    return by_size(of, 64, 1024, 4096)


def _rows(index: Callable[[int], Draw], source: Draw = normal, data: Draw = normal) -> Sizes:
    """A matrix and half as many rows to be written."""
    return by_size(
        lambda n: {
            "data": Input(shape=(n, n), draw=data),
            "index": Input(shape=(n // 2,), kind="int64", draw=index(n)),
            "source": Input(shape=(n // 2, n), draw=source),
        },
        64,
        1024,
        4096,
    )


def _half(n: int) -> tuple[int, ...]:
    return (n, n // 2)


def _whole(n: int) -> tuple[int, ...]:
    return (n, n)


def _row(n: int) -> tuple[int, ...]:
    return (n,)


_SCATTERED = _inputs(picks, normal, shape=_half)
_ADDED = _inputs(integers, normal, shape=_whole)
_FILLED = _inputs(picks, shape=lambda n: (n // 2,))
_MASKED = _inputs(shape=_whole, mask=True)
_MASKED_SOURCE = _inputs(source=normal, shape=_whole, mask=True)
_ROW = _inputs(source=normal, shape=_row)
_UPPER = _inputs(source=normal, shape=lambda n: (n // 2, n))
_PLACES = by_size(
    lambda n: {
        "data": Input(shape=(n, n)),
        "index": Input(shape=(n * n // 4,), kind="int64", draw=picks(n * n)),
        "source": Input(shape=(n * n // 4,)),
    },
    64,
    1024,
    2048,
)

# references that the operator and its in-place form share
_SCATTER = "ref.replaced(data, ref.along(index, dim), source)"
_SCATTER_ADD = "ref.added(data, ref.along(index, dim), source)"
_COPY_ROWS = "ref.replaced(data, index, source)"
_ADD_ROWS = "ref.added(data, index, source)"
_FILL_ROWS = "ref.replaced(data, index, value)"
_COPY_MASKED = "ref.replaced(data, mask, source.ravel()[: mask.sum()])"

_VALUE = {"value": 0.5}

OPERATORS = (
    # into a copy
    _copying("scatter", "torch.scatter(data, dim, index, source)", _SCATTER, _SCATTERED, attributes=OVER_COLUMNS),
    _copying(
        "scatter_value",
        "torch.scatter(data, dim, index, value)",
        "ref.replaced(data, ref.along(index, dim), value)",
        _inputs(picks, shape=_half),
        attributes={"dim": 1, "value": 0.5},
    ),
    _copying("index_copy", "torch.index_copy(data, 0, index, source)", _COPY_ROWS, _rows(picks)),
    _copying("index_fill", "torch.index_fill(data, 0, index, value)", _FILL_ROWS, _FILLED, attributes=_VALUE),
    _copying("index_put", "torch.index_put(data, (index,), source)", _COPY_ROWS, _rows(picks)),
    _copying(
        "put",
        "torch.put(data, index, source)",
        "ref.replaced(data.ravel(), index, source).reshape(data.shape)",
        _PLACES,
    ),
    _copying(
        "masked_fill", "torch.masked_fill(data, mask, value)", "np.where(mask, value, data)", _MASKED, attributes=_VALUE
    ),
    _copying("masked_scatter", "torch.masked_scatter(data, mask, source)", _COPY_MASKED, _MASKED_SOURCE),
    _copying(
        "slice_scatter",
        "torch.slice_scatter(data, source, 0, start, end)",
        "ref.replaced(data, np.s_[start:end], source)",
        _UPPER,
        attributes=lambda shapes: {"start": 0, "end": shapes["source"][0]},
    ),
    _copying(
        "select_scatter",
        "torch.select_scatter(data, source, 1, index)",
        "ref.replaced(data, np.s_[:, index], source)",
        _ROW,
        attributes={"index": 3},
    ),
    _copying(
        "diagonal_scatter",
        "torch.diagonal_scatter(data, source)",
        "ref.replaced(data, np.diag_indices(len(source)), source)",
        _ROW,
    ),
    _copying(
        # torch 2.13 gives the data a gradient where it was overwritten and none elsewhere; its own gradcheck says so
        "as_strided_scatter",
        "torch.as_strided_scatter(data, source, source.shape, (2 * data.shape[1], 1))",
        "ref.replaced(data, np.s_[::2], source)",
        _UPPER,
        **NO_GRADIENT,
    ),
    # adding and reducing into a copy
    _copying(
        "scatter_add",
        "torch.scatter_add(data, dim, index, source)",
        _SCATTER_ADD,
        _ADDED,
        attributes=OVER_COLUMNS,
        flops=per_input("source"),
    ),
    _copying(
        "scatter_add_rows",
        "torch.scatter_add(data, dim, index, source)",
        _SCATTER_ADD,
        _ADDED,
        attributes=OVER_ROWS,
        flops=per_input("source"),
    ),
    _copying(
        "scatter_reduce_amax",
        "torch.scatter_reduce(data, dim, index, source, 'amax')",
        "ref.raised(data, ref.along(index, dim), source)",
        _inputs(integers, _ranks(1, 0), shape=_whole, data=_ranks(1, 0.5)),
        attributes=OVER_COLUMNS,
        flops=per_input("source"),
        **WIDE,
    ),
    _copying(
        "scatter_reduce_mean",
        "torch.scatter_reduce(data, dim, index, source, 'mean')",
        "ref.averaged(data, ref.along(index, dim), source)",
        _ADDED,
        attributes=OVER_COLUMNS,
        flops=per_input("source"),
    ),
    _copying(
        "index_add",
        "torch.index_add(data, 0, index, source)",
        _ADD_ROWS,
        _rows(integers),
        flops=per_input("source"),
    ),
    _copying(
        "index_put_accumulate",
        "torch.index_put(data, (index,), source, accumulate=True)",
        _ADD_ROWS,
        _rows(integers),
        flops=per_input("source"),
    ),
    _copying(
        "index_reduce_amax",
        "torch.index_reduce(data, 0, index, source, 'amax')",
        "ref.raised(data, index, source)",
        _rows(integers, _ranks(0, 0), _ranks(0, 0.5)),
        flops=per_input("source"),
        **WIDE,
    ),
    # in place
    _inplace("scatter", "data.scatter_(dim, index, source)", _SCATTER, _SCATTERED, attributes=OVER_COLUMNS),
    _inplace(
        "scatter_add",
        "data.scatter_add_(dim, index, source)",
        _SCATTER_ADD,
        _inputs(integers, TINY, shape=_whole),
        attributes=OVER_COLUMNS,
        flops=per_input("source"),
    ),
    _inplace("index_copy", "data.index_copy_(0, index, source)", _COPY_ROWS, _rows(picks)),
    _inplace("index_fill", "data.index_fill_(0, index, value)", _FILL_ROWS, _FILLED, attributes=_VALUE),
    _inplace("index_put", "data.index_put_((index,), source)", _COPY_ROWS, _rows(picks)),
    _inplace(
        "setitem",
        "(data.__setitem__(index, source), data)[1]",
        "(data.__setitem__(index, source), data)[1]",
        _rows(picks),
        aliases=("setitem",),
    ),
    _inplace(
        "index_add",
        "data.index_add_(0, index, source)",
        _ADD_ROWS,
        _rows(integers, TINY),
        flops=per_input("source"),
    ),
    _inplace(
        "masked_fill", "data.masked_fill_(mask, value)", "ref.replaced(data, mask, value)", _MASKED, attributes=_VALUE
    ),
    _inplace("masked_scatter", "data.masked_scatter_(mask, source)", _COPY_MASKED, _MASKED_SOURCE),
    _inplace(
        "put", "data.put_(index, source)", "ref.replaced(data.ravel(), index, source).reshape(data.shape)", _PLACES
    ),
    _inplace(
        "fill_diagonal",
        "data.fill_diagonal_(value)",
        "ref.replaced(data, np.diag_indices(len(data)), value)",
        square(),
        attributes=_VALUE,
        moved=lambda call: call.written[0] / call.outputs[0][0],
    ),
)
