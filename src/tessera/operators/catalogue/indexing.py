"""Indexing that picks values out of a tensor. Picks are drawn with repeats; views move nothing."""

from __future__ import annotations

from typing import Any

from tessera.operators.catalogue.elementwise import NO_GRADIENT
from tessera.operators.catalogue.layouts import Sizes, square
from tessera.operators.draws import booleans, half_zero, integers
from tessera.operators.operator import Call, Input, Operator, by_size
from tessera.operators.work import nothing_moved, outputs_moved

WITHIN = "min(shapes['data'])"  # an index that is good in every dim


def _indexing(name: str, torch: str, reference: str, sizes: Sizes, **rest: Any) -> Operator:
    settings: dict[str, Any] = {"backward_bytes": 1.0, **rest}
    return Operator(name=name, category="indexing", torch=torch, reference=reference, sizes=sizes, **settings)


def _picked(name: str, torch: str, reference: str, sizes: Sizes, **rest: Any) -> Operator:
    """The index is read, and what is picked is read and written; the rest of the data is not touched."""

    def moved(call: Call) -> float:
        return call.read["index"] + outputs_moved(call)

    return _indexing(name, torch, reference, sizes, moved=moved, **rest)


def _places(name: str, torch: str, reference: str) -> Operator:
    """Where data is not zero."""
    return _indexing(name, torch, reference, square(half_zero), **NO_GRADIENT)


def _view(name: str, torch: str, reference: str, **rest: Any) -> Operator:
    return _indexing(name, torch, reference, square(), moved=nothing_moved, **rest)


_EACH = by_size(
    lambda n: {"data": Input(shape=(n, n)), "index": Input(shape=(n, n), kind="int64", draw=integers(WITHIN))},
    64,
    1024,
    4096,
)
_HALF = by_size(
    lambda n: {"data": Input(shape=(n, n)), "index": Input(shape=(n // 2,), kind="int64", draw=integers(WITHIN))},
    64,
    1024,
    4096,
)
_POINTS = by_size(
    lambda n: {
        "data": Input(shape=(n, n)),
        "rows": Input(shape=(n * n // 4,), kind="int64", draw=integers(WITHIN)),
        "index": Input(shape=(n * n // 4,), kind="int64", draw=integers(WITHIN)),
    },
    64,
    1024,
    4096,
)
_FLAT = by_size(
    lambda n: {
        "data": Input(shape=(n, n)),
        "index": Input(shape=(n * n // 4,), kind="int64", draw=integers("np.prod(shapes['data'])")),
    },
    64,
    1024,
    4096,
)
_MASKED = by_size(
    lambda n: {"data": Input(shape=(n, n)), "mask": Input(shape=(n, n), kind="bool", draw=booleans)}, 64, 1024, 4096
)
_CHOSEN = by_size(
    lambda n: {
        "condition": Input(shape=(n, n), kind="bool", draw=booleans),
        "lhs": Input(shape=(n, n)),
        "rhs": Input(shape=(n, n)),
    },
    64,
    1024,
    4096,
)
_NUMBERED = by_size(lambda n: {"index": Input(shape=(n,), kind="int64", draw=integers(n))}, 2**12, 2**20, 2**24)

OVER_ROWS = {"dim": 0}
OVER_COLUMNS = {"dim": 1}
_GATHER = ("torch.gather(data, dim, index)", "np.take_along_axis(data, index, dim)", _EACH)
_SELECT = ("torch.index_select(data, dim, index)", "np.take(data, index, dim)", _HALF)

OPERATORS = (
    _indexing("gather", *_GATHER, attributes=OVER_COLUMNS),
    _indexing("gather_rows", *_GATHER, attributes=OVER_ROWS),
    _indexing(
        "take_along_dim",
        "torch.take_along_dim(data, index, dim)",
        "np.take_along_axis(data, index, dim)",
        _EACH,
        attributes=OVER_COLUMNS,
    ),
    _picked("index_select", *_SELECT, attributes=OVER_ROWS),
    _picked("index_select_cols", *_SELECT, attributes=OVER_COLUMNS),
    _picked("index_rows", "data[index]", "data[index]", _HALF),
    _picked("index_cols", "data[:, index]", "data[:, index]", _HALF),
    _picked("index_points", "data[rows, index]", "data[rows, index]", _POINTS),
    _picked("take", "torch.take(data, index)", "np.take(data, index)", _FLAT),
    _indexing("where", "torch.where(condition, lhs, rhs)", "np.where(condition, lhs, rhs)", _CHOSEN),
    _places(
        "nonzero_static", "torch.nonzero_static(data, size=data.numel(), fill_value=-1)", "ref.nonzero_static(data)"
    ),
    _indexing("masked_select", "torch.masked_select(data, mask)", "data[mask]", _MASKED),
    _indexing("boolean_mask", "data[mask]", "data[mask]", _MASKED),
    _places("nonzero", "torch.nonzero(data)", "np.argwhere(data)"),
    _places("nonzero_tuple", "torch.nonzero(data, as_tuple=True)", "np.nonzero(data)"),
    _places("argwhere", "torch.argwhere(data)", "np.argwhere(data)"),
    _indexing(
        "unravel_index",
        "torch.unravel_index(index, shape)",
        "np.unravel_index(index, shape)",
        _NUMBERED,
        attributes=lambda shapes: {"shape": (64, -(-shapes["index"][0] // 64))},
        **NO_GRADIENT,
    ),
    _view("select", "torch.select(data, dim, index)", "np.take(data, index, dim)", attributes={"dim": 1, "index": 3}),
    _view(
        "narrow",
        "torch.narrow(data, 1, start, length)",
        "data[:, start : start + length]",
        attributes=lambda shapes: {"start": 1, "length": shapes["data"][1] // 2},
    ),
    _view("slice", "data[1:-1, 1:-1]", "data[1:-1, 1:-1]"),
    _view("slice_strided", "data[::2, ::2]", "data[::2, ::2]"),
    _view("diagonal", "torch.diagonal(data, offset)", "np.diagonal(data, offset)", attributes={"offset": 1}),
)
