"""MXNet expressions of operators that index, reshape, create, draw or convert tensors. No result is a view."""

from __future__ import annotations

INDEXING_EXPRESSIONS = {
    "index_select": "nd.take(data, index, axis=dim)",
    "index_rows": "data[index]",
    "index_cols": "data[:, index]",
    "index_points": "data[rows, index]",
    "nonzero": "npx.nonzero(data)",
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

_THREE_INPUTS = "first, second, third"
_SPLIT_CALL = "nd.split(data, num_outputs=shapes['data'][0] // split_size, axis=0)"
_PAD_WIDTHS_TEMPLATE = "(0, 0, 0, 0) + (padding,) * {}"  # pad_width: no padding of the batch and channel dims


def _write_pad(mode: str, dims: int) -> str:
    return f"nd.pad(data, mode='{mode}', pad_width={_PAD_WIDTHS_TEMPLATE.format(2 * dims)})"


SHAPING_EXPRESSIONS = {
    # joining and splitting
    "cat": f"nd.concat({_THREE_INPUTS}, dim=dim)",
    "cat_channels": "nd.concat(first, second, dim=dim)",
    "cat_vectors": f"nd.concat({_THREE_INPUTS}, dim=0)",
    "stack": f"nd.stack({_THREE_INPUTS}, axis=dim)",
    "split": _SPLIT_CALL,
    "split_copy": _SPLIT_CALL,
    "split_sizes": "mnp.split(data, (sections[0], sections[0] + sections[1]))",
    "chunk": "nd.split(data, num_outputs=chunks, axis=0)",
    "unbind": "nd.split(data, num_outputs=shapes['data'][dim], axis=dim, squeeze_axis=True)",
    "unbind_copy": "nd.split(data, num_outputs=shapes['data'][-1], axis=-1, squeeze_axis=True)",
    "meshgrid": "mnp.meshgrid(first, second, indexing='ij')",
    "broadcast_tensors": f"mnp.broadcast_arrays({_THREE_INPUTS})",
    "pad_constant": _write_pad("constant", 2),
    "pad_reflect": _write_pad("reflect", 2),
    "pad_replicate": _write_pad("edge", 2),
    "pad_replicate_3d": _write_pad("edge", 3),
    "pad_reflect_3d": _write_pad("reflect", 3),
    "pad_constant_1d": "mnp.pad(data, ((0, 0), (0, 0), (padding, padding)))",
    "pad_reflect_1d": "mnp.pad(data, ((0, 0), (0, 0), (padding, padding)), 'reflect')",
    # shapes
    "reshape": "nd.reshape(data, shape=(-1,))",
    "ravel": "mnp.ravel(data)",
    "flatten": "nd.flatten(data)",
    "unflatten": "nd.reshape(data, shape=(*sizes, -1))",
    "transpose": "nd.swapaxes(data, dim1=0, dim2=1)",
    "swapaxes": "nd.swapaxes(data, dim1=0, dim2=1)",
    "t": "nd.transpose(data)",
    "permute": "nd.transpose(data, axes=dims)",
    "squeeze": "nd.squeeze(data)",
    "squeeze_dim": "nd.squeeze(data, axis=dim)",
    "unsqueeze": "nd.expand_dims(data, axis=dim)",
    "expand": "nd.broadcast_to(data, shape=size)",
    "broadcast_to": "nd.broadcast_to(data, shape=size)",
    "view_copy": "nd.reshape(data, shape=(-1,))",
    "t_copy": "nd.transpose(data)",
    "transpose_copy": "nd.swapaxes(data, dim1=0, dim2=1)",
    "permute_copy": "nd.transpose(data, axes=(2, 0, 1))",
    "squeeze_copy": "nd.squeeze(data)",
    "unsqueeze_copy": "nd.expand_dims(data, axis=1)",
    "expand_copy": "nd.broadcast_to(data, shape=size)",
    # reordering
    "transpose_contiguous": "nd.transpose(data)",
    "permute_contiguous": "nd.transpose(data, axes=(0, 2, 3, 1))",
    "swap_heads": "nd.swapaxes(data, dim1=1, dim2=2)",
    "flip": "nd.flip(data, axis=dims)",
    "fliplr": "mnp.fliplr(data)",
    "flipud": "mnp.flipud(data)",
    "rot90": "mnp.rot90(data, k)",
    "repeat": "nd.tile(data, reps=repeats)",
    "tile": "nd.tile(data, reps=dims)",
    "repeat_interleave": "nd.repeat(data, repeats=repeats, axis=1)",
    "narrow_copy": "nd.slice_axis(data, axis=1, begin=start, end=start + length)",
    "unfold": "nd.im2col(data, kernel=(kernel_size,) * 2, pad=(padding,) * 2, stride=(stride,) * 2)",
    "fold": "nd.col2im(data, output_size, (kernel_size,) * 2, pad=(padding,) * 2, stride=(stride,) * 2)",
    # triangles and diagonals
    "diag": "nd.diag(data)",
    "diag_embed": "nd.linalg.makediag(data)",
}

_CAST_DTYPES = ("float64", "float16", "int64", "int32", "int8", "uint8", "bool")

CREATION_EXPRESSIONS = {
    # creation of filled tensors
    "zeros": "nd.zeros(size, dtype=like.dtype)",
    "ones": "nd.ones(size, dtype=like.dtype)",
    "full": "nd.full(size, 0.5, dtype=like.dtype)",
    "empty": "nd.empty(size, dtype=like.dtype)",
    "zeros_like": "nd.zeros_like(like)",
    "ones_like": "nd.ones_like(like)",
    "eye": "nd.eye(n, dtype=like.dtype)",
    "arange": "mnp.arange(n, dtype='int64')",
    "arange_float": "nd.arange(n, dtype=like.dtype)",
    "linspace": "nd.linspace(0.0, 1.0, n, dtype=like.dtype)",
    "hann_window": "mnp.hanning(n, dtype=like.dtype)",
    "hamming_window": "mnp.hamming(n, dtype=like.dtype)",
    "blackman_window": "mnp.blackman(n, dtype=like.dtype)",
    "clone": "nd.identity(data)",
    "inplace_fill": "nd.full(shapes['data'], value, dtype=data.dtype, out=data)",
    "inplace_zero": "nd.zeros_like(data, out=data)",
    "inplace_copy": "source.copyto(data)",
    "inplace_copy_transposed": "nd.transpose(source, out=data)",
    # random values
    "rand": "nd.random.uniform(0, 1, shape=size, dtype=like.dtype)",
    "randn": "nd.random.normal(0, 1, shape=size, dtype=like.dtype)",
    "randint": "nd.random.randint(0, 100, shape=size, dtype='int64')",
    "rand_like": "nd.random.uniform_like(like)",
    "randn_like": "nd.random.normal_like(like)",
    "normal": "nd.random.normal(mean, std)",
    "bernoulli": "npx.random.bernoulli(prob=data)",
    "poisson": "nd.random.poisson(data)",
    "multinomial": "nd.random.multinomial(data, shape=num_samples)",
    "inplace_uniform": "nd.random.uniform(-1, 1, shape=shapes['data'], dtype=data.dtype, out=data)",
    "inplace_normal": "nd.random.normal(1, 2, shape=shapes['data'], dtype=data.dtype, out=data)",
    "inplace_exponential": "nd.random.exponential(0.5, shape=shapes['data'], dtype=data.dtype, out=data)",
    "dropout": "nd.Dropout(data, p=p, mode='always')",
    "dropout1d": "nd.Dropout(data, p=p, axes=(2,), mode='always')",
    "dropout2d": "nd.Dropout(data, p=p, axes=(2, 3), mode='always')",
    "dropout3d": "nd.Dropout(data, p=p, axes=(2, 3, 4), mode='always')",
    # conversion
    **{f"to_{name}": f"nd.cast(data, dtype='{name}')" for name in _CAST_DTYPES},
    "float64_to_float32": "nd.cast(data, dtype='float32')",
    "from_channels_last": "nd.transpose(data, axes=(0, 3, 1, 2))",
    # optimiser steps: MXNet's other optimisers have different states, or add epsilon at a different step
    "sgd": "nd.sgd_update(param, grad, lr=lr, wd=weight_decay, out=param)",
}

EXPRESSIONS = INDEXING_EXPRESSIONS | SHAPING_EXPRESSIONS | CREATION_EXPRESSIONS
