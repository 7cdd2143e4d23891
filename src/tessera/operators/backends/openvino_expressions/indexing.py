"""How OpenVINO writes indexing: picking values out, writing them back, adding into places."""

from __future__ import annotations

from collections.abc import Mapping

PICKING = {
    "argwhere": "op.transpose(op.non_zero(data, 'i64'), [1, 0])",
    "gather": "op.gather_elements(data, index, dim)",
    "gather_rows": "op.gather_elements(data, index, dim)",
    "index_cols": "op.gather(data, index, 1)",
    "index_points": "op.gather_nd(data, op.concat([op.unsqueeze(rows, [1]), op.unsqueeze(index, [1])], 1))",
    "index_rows": "op.gather(data, index, 0)",
    "index_select": "op.gather(data, index, dim)",
    "index_select_cols": "op.gather(data, index, dim)",
    "narrow": "op.slice(data, [start], [start + length], [1], [1])",
    "nonzero": "op.transpose(op.non_zero(data, 'i64'), [1, 0])",
    "nonzero_tuple": "(lambda places: [op.gather(places, row, 0) for row in (0, 1)])(op.non_zero(data, 'i64'))",
    "select": "op.gather(data, index, dim)",
    "slice": "op.slice(data, [1, 1], [-1, -1], [1, 1], [0, 1])",
    "slice_strided": "op.slice(data, [0, 0], list(data.shape), [2, 2], [0, 1])",
    "take": "op.gather(op.reshape(data, [-1], False), index, 0)",
    "take_along_dim": "op.gather_elements(data, index, dim)",
    "where": "op.select(condition, lhs, rhs)",
}

ROWS = "op.unsqueeze(index, [1])"
WRITING = {
    "index_add": f"op.scatter_nd_update(data, {ROWS}, source, 'sum')",
    "index_copy": "op.scatter_update(data, index, source, 0)",
    "index_fill": "op.scatter_update(data, index, op.broadcast(real(value), [index.shape[0], data.shape[1]]), 0)",
    "index_put": f"op.scatter_nd_update(data, {ROWS}, source)",
    "index_put_accumulate": f"op.scatter_nd_update(data, {ROWS}, source, 'sum')",
    "index_reduce_amax": f"op.scatter_nd_update(data, {ROWS}, source, 'max')",
    "masked_fill": "op.select(mask, real(value), data)",
    "put": (
        "op.reshape(op.scatter_elements_update(op.reshape(data, [-1], False), index, source, 0),"
        " list(data.shape), False)"
    ),
    "scatter": "op.scatter_elements_update(data, index, source, dim)",
    "scatter_add": "op.scatter_elements_update(data, index, source, dim, 'sum')",
    "scatter_add_rows": "op.scatter_elements_update(data, index, source, dim, 'sum')",
    "scatter_reduce_amax": "op.scatter_elements_update(data, index, source, dim, 'max')",
    "scatter_reduce_mean": "op.scatter_elements_update(data, index, source, dim, 'mean')",
    "scatter_value": "op.scatter_elements_update(data, index, op.broadcast(real(value), list(index.shape)), dim)",
    "slice_scatter": "op.slice_scatter(data, source, [start], [end], [1], [0])",
}

INDEXING: Mapping[str, str] = {**PICKING, **WRITING}
