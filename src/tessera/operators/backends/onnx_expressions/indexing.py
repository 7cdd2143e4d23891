"""How ONNX writes indexing: picking values out, writing them back, adding into places."""

from __future__ import annotations

from collections.abc import Mapping

PICKING = {
    "argwhere": "op.Transpose(op.NonZero(data), perm=[1, 0])",
    "boolean_mask": "op.Compress(data, op.Reshape(mask, [-1]))",
    "gather": "op.GatherElements(data, index, axis=dim)",
    "gather_rows": "op.GatherElements(data, index, axis=dim)",
    "index_cols": "op.Gather(data, index, axis=1)",
    "index_points": "op.GatherND(data, op.Concat(op.Unsqueeze(rows, [1]), op.Unsqueeze(index, [1]), axis=1))",
    "index_rows": "op.Gather(data, index)",
    "index_select": "op.Gather(data, index, axis=dim)",
    "index_select_cols": "op.Gather(data, index, axis=dim)",
    "masked_select": "op.Compress(data, op.Reshape(mask, [-1]))",
    "narrow": "op.Slice(data, [start], [start + length], [1])",
    "nonzero": "op.Transpose(op.NonZero(data), perm=[1, 0])",
    "nonzero_tuple": "(lambda places: (op.Gather(places, 0), op.Gather(places, 1)))(op.NonZero(data))",
    "select": "op.Gather(data, index, axis=dim)",
    "slice": "op.Slice(data, [1, 1], [-1, -1], [0, 1])",
    "slice_strided": "op.Slice(data, [0, 0], data.shape, [0, 1], [2, 2])",
    "take": "op.Gather(op.Reshape(data, [-1]), index)",
    "take_along_dim": "op.GatherElements(data, index, axis=dim)",
    "unravel_index": "(op.Div(index, shape[1]), op.Mod(index, shape[1]))",
    "where": "op.Where(condition, lhs, rhs)",
}

ROWS = "op.Unsqueeze(index, [1])"
WRITING = {
    "index_add": f"op.ScatterND(data, {ROWS}, source, reduction='add')",
    "index_copy": f"op.ScatterND(data, {ROWS}, source)",
    "index_fill": f"op.ScatterND(data, {ROWS}, op.Expand(value, [index.shape[0], data.shape[1]]))",
    "index_put": f"op.ScatterND(data, {ROWS}, source)",
    "index_put_accumulate": f"op.ScatterND(data, {ROWS}, source, reduction='add')",
    "index_reduce_amax": f"op.ScatterND(data, {ROWS}, source, reduction='max')",
    "masked_fill": "op.Where(mask, value, data)",
    "put": "op.Reshape(op.ScatterElements(op.Reshape(data, [-1]), index, source), data.shape)",
    "scatter": "op.ScatterElements(data, index, source, axis=dim)",
    "scatter_add": "op.ScatterElements(data, index, source, axis=dim, reduction='add')",
    "scatter_add_rows": "op.ScatterElements(data, index, source, axis=dim, reduction='add')",
    "scatter_reduce_amax": "op.ScatterElements(data, index, source, axis=dim, reduction='max')",
    "scatter_value": "op.ScatterElements(data, index, op.Expand(value, index.shape), axis=dim)",
}

INDEXING: Mapping[str, str] = {**PICKING, **WRITING}
