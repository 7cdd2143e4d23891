"""Indexing: what other frameworks give as views are copies here."""

from __future__ import annotations

EXPRESSIONS = {
    "index_select": "nd.take(data, index, axis=dim)",
    "index_select_cols": "nd.take(data, index, axis=dim)",
    "index_rows": "data[index]",
    "index_cols": "data[:, index]",
    "index_points": "data[rows, index]",
    "take": "mnp.take(data, index)",
    "where": "mnp.where(condition, lhs, rhs)",
    "masked_fill": "mnp.where(mask, value, data)",
    "nonzero": "npx.nonzero(data)",
    "nonzero_tuple": "mnp.nonzero(data)",
    "unravel_index": "mnp.unravel_index(index, (64, shapes['index'][0] // 64))",
    "select": "data[:, index]",
    "narrow": "nd.slice_axis(data, axis=1, begin=start, end=start + length)",
    "slice": "data[1:-1, 1:-1]",
    "slice_strided": "data[::2, ::2]",
    "diagonal": "nd.diag(data, k=offset)",
    "select_copy": "data[:, index]",
    "slice_copy": "data[:, 1::2]",
    "diagonal_copy": "nd.diag(data)",
    "index_copy": "nd.contrib.index_copy(data, index, source)",
}
