"""Sorting and searching. Rows hold distinct values, so that a place has one answer; `--skew` gives other orders."""

from __future__ import annotations

from typing import Any

from tessera.operators.catalogue.elementwise import NO_GRADIENT, WIDE
from tessera.operators.catalogue.layouts import Sizes, table, vector
from tessera.operators.catalogue.reduction import POINTED_AT
from tessera.operators.draws import Draw, distinct, integers, normal, spaced
from tessera.operators.operator import Input, Operator, by_size

ASCENDING = Draw("np.sort(rng.standard_normal(shape))")
IN_RUNS = Draw("rng.integers(0, 1000, shape) // 4 * (np.arange(shape[-1]) // 8 % 2)")

# the values found and, as equal ones may lie in any order, what the places found hold
VALUES_AND_PLACES = "(out[0], np.take_along_axis(i['data'], out[1], i['dim']))"
VALUES_AT_PLACES = "np.take_along_axis(i['data'], out[0], i['dim'])"


def _sorting(name: str, torch: str, reference: str, sizes: Sizes | None = None, **rest: Any) -> Operator:
    settings: dict[str, Any] = {"backward_bytes": 1.0, "attributes": {"dim": -1}, **rest}
    return Operator(name=name, category="sorting", torch=torch, reference=reference, sizes=sizes or table(), **settings)


def _search(name: str, torch: str, reference: str, sizes: Sizes) -> Operator:
    return _sorting(name, torch, reference, sizes, attributes={}, **NO_GRADIENT)


def _boundaries(sequence: str, draw: Draw = normal) -> Sizes:
    """A sorted sequence under the name that torch has for it, and values to be found in it."""
    return by_size(
        lambda n, m: {sequence: Input(shape=(n,), draw=ASCENDING), "data": Input(shape=(m, m), draw=draw)},
        (64, 64),
        (1024, 512),
        (4096, 2048),
    )


_ROWS_OF_BOUNDARIES = by_size(
    lambda rows, n: {"sorted_sequence": Input(shape=(rows, n), draw=ASCENDING), "data": Input(shape=(rows, n))},
    (16, 256),
    (256, 1024),
    (1024, 4096),
)
_COLUMNS = by_size(lambda n, columns: {"data": Input(shape=(n, columns))}, (256, 16), (1024, 128), (4096, 1024))
_REPEATED_ROWS = by_size(lambda n: {"data": Input(shape=(n, 4), draw=integers(5), kind="int64")}, 256, 2**13, 2**16)

OPERATORS = (
    _sorting("sort", "torch.sort(data, dim)", "ref.sort(data, dim)", checked=VALUES_AND_PLACES),
    _sorting(
        "sort_descending",
        "torch.sort(data, dim, descending=True)",
        "ref.sort(data, dim, descending=True)",
        checked=VALUES_AND_PLACES,
    ),
    _sorting("sort_stable", "torch.sort(data, dim=dim, stable=True)", "ref.sort(data, dim)"),
    _sorting(
        "sort_cols",
        "torch.sort(data, dim)",
        "ref.sort(data, dim)",
        _COLUMNS,
        attributes={"dim": 0},
        checked=VALUES_AND_PLACES,
        **NO_GRADIENT,
    ),
    _sorting(
        "sort_vector",
        "torch.sort(data, dim)",
        "ref.sort(data, dim)",
        vector(spaced),
        checked=VALUES_AND_PLACES,
        **WIDE,
    ),
    _sorting(
        "sort_int64",
        "torch.sort(data, dim)",
        "ref.sort(data, dim)",
        table(integers(2**40), "int64"),
        checked=VALUES_AND_PLACES,
        **NO_GRADIENT,
    ),
    _sorting(
        "sort_uint8",
        "torch.sort(data, dim)",
        "ref.sort(data, dim)",
        table(integers(256), "uint8"),
        checked=VALUES_AND_PLACES,
        **NO_GRADIENT,
    ),
    _sorting("msort", "torch.msort(data)", "np.sort(data, 0)", _COLUMNS, attributes={}, **NO_GRADIENT),
    _sorting(
        "argsort",
        "torch.argsort(data, dim)",
        "np.argsort(data, dim)",
        checked=VALUES_AT_PLACES,
        **NO_GRADIENT,
    ),
    _sorting(
        "argsort_stable",
        "torch.argsort(data, dim=dim, stable=True)",
        "np.argsort(data, dim, kind='stable')",
        table(integers(256), "int32"),
        **NO_GRADIENT,
    ),
    _sorting(
        "topk",
        "torch.topk(data, k, dim)",
        "ref.topk(data, k, dim)",
        attributes={"dim": -1, "k": 10},
        checked=VALUES_AND_PLACES,
        backward_bytes=0.5,
    ),
    _sorting(
        "topk_unsorted",
        "torch.topk(data, k, dim, sorted=False)",
        "ref.topk(data, k, dim)",
        attributes={"dim": -1, "k": 100},
        checked="(np.sort(out[0]), np.sort(np.take_along_axis(i['data'], out[1], i['dim'])))",
        **NO_GRADIENT,
    ),
    _sorting(
        "topk_vector",
        "torch.topk(data, k, dim)",
        "ref.topk(data, k, dim)",
        vector(spaced),
        attributes={"dim": -1, "k": 100},
        checked=VALUES_AND_PLACES,
        backward_bytes=0.5,
        **WIDE,
    ),
    _sorting(
        "kthvalue",
        "torch.kthvalue(data, k, dim)",
        "ref.kthvalue(data, k, dim)",
        table(distinct),
        attributes={"dim": -1, "k": 20},
        checked=f"(out[0], {POINTED_AT})",
        backward_bytes=0.5,
    ),
    _search("unique", "torch.unique(data)", "np.unique(data)", vector(integers(1000), "int64")),
    _search("unique_float", "torch.unique(data)", "np.unique(data)", vector(normal)),
    _search(
        "unique_counts",
        "torch.unique(data, return_inverse=True, return_counts=True)",
        "np.unique(data, return_inverse=True, return_counts=True)",
        vector(integers(1000), "int64"),
    ),
    _search("unique_rows", "torch.unique(data, dim=0)", "np.unique(data, axis=0)", _REPEATED_ROWS),
    _search(
        "unique_consecutive",
        "torch.unique_consecutive(data)",
        "data[np.insert(np.diff(data) != 0, 0, True)]",
        vector(IN_RUNS, "int64"),
    ),
    _search(
        "searchsorted",
        "torch.searchsorted(sorted_sequence, data)",
        "np.searchsorted(sorted_sequence, data)",
        _boundaries("sorted_sequence"),
    ),
    _search(
        "searchsorted_ordered",
        "torch.searchsorted(sorted_sequence, data)",
        "np.searchsorted(sorted_sequence, data)",
        _boundaries("sorted_sequence", ASCENDING),
    ),
    _search(
        "searchsorted_rows",
        "torch.searchsorted(sorted_sequence, data)",
        "ref.searchsorted_rows(sorted_sequence, data)",
        _ROWS_OF_BOUNDARIES,
    ),
    _search(
        "bucketize",
        "torch.bucketize(data, boundaries)",
        "np.searchsorted(boundaries, data)",
        _boundaries("boundaries"),
    ),
)
