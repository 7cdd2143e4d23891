"""Sorting and searching. Values of a row are distinct, so that indices are unique; `--skew` selects the input order."""

from __future__ import annotations

from functools import partial

from tessera.operators.catalogue.families import (
    NO_GRADIENT,
    WIDE_DTYPES,
    Sizes,
    define_family,
    make_rows,
    make_vector,
    write_both,
)
from tessera.operators.catalogue.reduction import VALUES_AT_INDICES
from tessera.operators.draws import Draw, distinct_values, integers, normal, spaced_values
from tessera.operators.operator import Input, make_sizes

ASCENDING_VALUES = Draw("np.sort(rng.standard_normal(shape))")
VALUES_IN_RUNS = Draw("rng.integers(0, 1000, shape) // 4 * (np.arange(shape[-1]) // 8 % 2)")

# compare values, and the values at the returned indices, because equal values may be in any order
VALUES_AND_INDEXED_VALUES = "(out[0], np.take_along_axis(i['data'], out[1], i['dim']))"
INDEXED_VALUES = "np.take_along_axis(i['data'], out[0], i['dim'])"


_define_sorting = define_family("sorting", default_sizes=make_rows(), backward_bytes=1.0, attributes={"dim": -1})
_define_sort = partial(
    _define_sorting, torch="torch.sort(data, dim)", reference="ref.sort(data, dim)", checked=VALUES_AND_INDEXED_VALUES
)
_define_search = partial(_define_sorting, attributes={}, differentiable=False)


def _make_boundaries(sequence: str, draw: Draw = normal) -> Sizes:
    """Make a sorted sequence, as an input named `sequence`, and values `data` to search for."""
    return make_sizes(
        lambda n, m: {sequence: Input((n,), ASCENDING_VALUES), "data": Input((m, m), draw)},
        (64, 64),
        (1024, 512),
        (4096, 2048),
    )


_BOUNDARY_ROW_INPUTS = make_sizes(
    lambda rows, n: {"sorted_sequence": Input((rows, n), ASCENDING_VALUES), "data": Input((rows, n))},
    (16, 256),
    (256, 1024),
    (1024, 4096),
)
_COLUMN_INPUTS = make_sizes(lambda n, columns: {"data": Input((n, columns))}, (256, 16), (1024, 128), (4096, 1024))
_REPEATED_ROW_INPUTS = make_sizes(lambda n: {"data": Input((n, 4), integers(5), "int64")}, 256, 2**13, 2**16)

OPERATORS = (
    _define_sort("sort"),
    _define_sort(
        "sort_descending",
        torch="torch.sort(data, dim, descending=True)",
        reference="ref.sort(data, dim, descending=True)",
    ),
    _define_sorting("sort_stable", "torch.sort(data, dim=dim, stable=True)", "ref.sort"),
    _define_sort("sort_cols", sizes=_COLUMN_INPUTS, attributes={"dim": 0}, **NO_GRADIENT),
    _define_sort("sort_vector", sizes=make_vector(spaced_values), **WIDE_DTYPES),
    _define_sort("sort_int64", sizes=make_rows(integers(2**40), "int64"), **NO_GRADIENT),
    _define_sort("sort_uint8", sizes=make_rows(integers(256), "uint8"), **NO_GRADIENT),
    _define_sorting("msort", reference="np.sort(data, 0)", sizes=_COLUMN_INPUTS, attributes={}, **NO_GRADIENT),
    _define_sorting("argsort", checked=INDEXED_VALUES, **NO_GRADIENT),
    _define_sorting(
        "argsort_stable",
        "torch.argsort(data, dim=dim, stable=True)",
        "np.argsort(data, dim, kind='stable')",
        make_rows(integers(256), "int32"),
        **NO_GRADIENT,
    ),
    _define_sorting(
        "topk",
        "torch.topk(data, k, dim)",
        "ref.topk(data, k, dim)",
        attributes={"dim": -1, "k": 10},
        checked=VALUES_AND_INDEXED_VALUES,
        backward_bytes=0.5,
    ),
    _define_sorting(
        "topk_unsorted",
        "torch.topk(data, k, dim, sorted=False)",
        "ref.topk(data, k, dim)",
        attributes={"dim": -1, "k": 100},
        checked="(np.sort(out[0]), np.sort(np.take_along_axis(i['data'], out[1], i['dim'])))",
        **NO_GRADIENT,
    ),
    _define_sorting(
        "topk_vector",
        "torch.topk(data, k, dim)",
        "ref.topk(data, k, dim)",
        make_vector(spaced_values),
        attributes={"dim": -1, "k": 100},
        checked=VALUES_AND_INDEXED_VALUES,
        backward_bytes=0.5,
        **WIDE_DTYPES,
    ),
    _define_sorting(
        "kthvalue",
        "torch.kthvalue(data, k, dim)",
        "ref.kthvalue(data, k, dim)",
        make_rows(distinct_values),
        attributes={"dim": -1, "k": 20},
        checked=f"(out[0], {VALUES_AT_INDICES})",
        backward_bytes=0.5,
    ),
    _define_search("unique", sizes=make_vector(integers(1000), "int64")),
    _define_search("unique_float", "torch.unique", "np.unique", make_vector(normal)),
    _define_search(
        "unique_counts",
        *write_both("unique(data, return_inverse=True, return_counts=True)"),
        make_vector(integers(1000), "int64"),
    ),
    _define_search("unique_rows", "torch.unique(data, dim=0)", "np.unique(data, axis=0)", _REPEATED_ROW_INPUTS),
    _define_search(
        "unique_consecutive",
        reference="data[np.insert(np.diff(data) != 0, 0, True)]",
        sizes=make_vector(VALUES_IN_RUNS, "int64"),
    ),
    _define_search("searchsorted", sizes=_make_boundaries("sorted_sequence")),
    _define_search(
        "searchsorted_ordered",
        "torch.searchsorted",
        "np.searchsorted",
        _make_boundaries("sorted_sequence", ASCENDING_VALUES),
    ),
    _define_search("searchsorted_rows", "torch.searchsorted", "ref.searchsorted_rows", _BOUNDARY_ROW_INPUTS),
    _define_search("bucketize", "torch.bucketize(data, boundaries)", "np.searchsorted", _make_boundaries("boundaries")),
)
