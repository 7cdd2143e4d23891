"""Indexing in JAX. What depends on the values of its inputs for its shape cannot be jitted, and is not here."""

from __future__ import annotations

# an index along dim 1 or 0 of a matrix, as an index over both
COLUMNS = "jnp.arange(index.shape[0])[:, None], index"
ROWS = "index, jnp.arange(index.shape[1])"

EXPRESSIONS = {
    # picking
    "gather": "jnp.take_along_axis(data, index, dim)",
    "gather_rows": "jnp.take_along_axis(data, index, dim)",
    "take_along_dim": "jnp.take_along_axis(data, index, dim)",
    "index_select": "jnp.take(data, index, dim)",
    "index_select_cols": "jnp.take(data, index, dim)",
    "index_rows": "data[index]",
    "index_cols": "data[:, index]",
    "index_points": "data[rows, index]",
    "take": "jnp.take(data, index)",
    "where": "jnp.where(condition, lhs, rhs)",
    "nonzero_static": "jnp.argwhere(data, size=data.size, fill_value=-1)",
    "unravel_index": "jnp.unravel_index(index, shape)",
    # views elsewhere, copies here
    "select": "jnp.take(data, index, dim)",
    "narrow": "data[:, start : start + length]",
    "slice": "data[1:-1, 1:-1]",
    "slice_strided": "data[::2, ::2]",
    "diagonal": "jnp.diagonal(data, offset)",
    # writing into a copy
    "scatter": "jnp.put_along_axis(data, index, source, dim, inplace=False)",
    "scatter_value": "jnp.put_along_axis(data, index, value, dim, inplace=False)",
    "index_copy": "data.at[index].set(source)",
    "index_fill": "data.at[index].set(value)",
    "index_put": "data.at[index].set(source)",
    "put": "jnp.put(data, index, source, inplace=False)",
    "masked_fill": "jnp.where(mask, value, data)",
    "masked_scatter": "jnp.place(data, mask, source, inplace=False)",
    "slice_scatter": "data.at[start:end].set(source)",
    "select_scatter": "data.at[:, index].set(source)",
    "diagonal_scatter": "jnp.fill_diagonal(data, source, inplace=False)",
    # adding and reducing into a copy
    "scatter_add": f"data.at[{COLUMNS}].add(source)",
    "scatter_add_rows": f"data.at[{ROWS}].add(source)",
    "scatter_reduce_amax": f"data.at[{COLUMNS}].max(source)",
    "scatter_reduce_mean": f"data.at[{COLUMNS}].add(source) / jnp.ones_like(data).at[{COLUMNS}].add(1)",
    "index_add": "data.at[index].add(source)",
    "index_put_accumulate": "data.at[index].add(source)",
    "index_reduce_amax": "data.at[index].max(source)",
}
