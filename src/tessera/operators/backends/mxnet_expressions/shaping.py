"""Joining, splitting, padding, changing shapes. Every result is a copy."""

from __future__ import annotations

_THREE = "first, second, third"
_SPLIT = "nd.split(data, num_outputs=shapes['data'][0] // split_size, axis=0)"
_PLANES = "(0, 0, 0, 0) + (padding,) * {}"  # of padding: none of the batch and the channels


def _padded(mode: str, dims: int) -> str:
    return f"nd.pad(data, mode='{mode}', pad_width={_PLANES.format(2 * dims)})"


EXPRESSIONS = {
    # joining and splitting
    "cat": f"nd.concat({_THREE}, dim=dim)",
    "cat_cols": f"nd.concat({_THREE}, dim=dim)",
    "cat_channels": "nd.concat(first, second, dim=dim)",
    "cat_vectors": f"nd.concat({_THREE}, dim=0)",
    "stack": f"nd.stack({_THREE}, axis=dim)",
    "stack_last": f"nd.stack({_THREE}, axis=dim)",
    **{name: f"mnp.{name}(({_THREE}))" for name in ("hstack", "vstack", "dstack", "column_stack")},
    "split": _SPLIT,
    "split_copy": _SPLIT,
    "split_sizes": "mnp.split(data, (sections[0], sections[0] + sections[1]))",
    "chunk": "nd.split(data, num_outputs=chunks, axis=0)",
    "tensor_split": "mnp.array_split(data, sections)",
    **{name: f"mnp.{name}(data, sections)" for name in ("hsplit", "vsplit", "dsplit")},
    "unbind": "nd.split(data, num_outputs=shapes['data'][dim], axis=dim, squeeze_axis=True)",
    "unbind_copy": "nd.split(data, num_outputs=shapes['data'][-1], axis=-1, squeeze_axis=True)",
    "meshgrid": "mnp.meshgrid(first, second, indexing='ij')",
    "broadcast_tensors": f"mnp.broadcast_arrays({_THREE})",
    "pad_constant": _padded("constant", 2),
    "pad_reflect": _padded("reflect", 2),
    "pad_replicate": _padded("edge", 2),
    "pad_replicate_3d": _padded("edge", 3),
    "pad_reflect_3d": _padded("reflect", 3),
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
    "movedim": "mnp.moveaxis(data, 0, -1)",
    "squeeze": "nd.squeeze(data)",
    "squeeze_dim": "nd.squeeze(data, axis=dim)",
    "unsqueeze": "nd.expand_dims(data, axis=dim)",
    "atleast_1d": "mnp.atleast_1d(data)",
    "atleast_2d": "mnp.atleast_2d(data)",
    "atleast_3d": "mnp.atleast_3d(data)",
    "expand": "nd.broadcast_to(data, shape=size)",
    "broadcast_to": "nd.broadcast_to(data, shape=size)",
    "view_copy": "nd.reshape(data, shape=(-1,))",
    "t_copy": "nd.transpose(data)",
    "transpose_copy": "nd.swapaxes(data, dim1=0, dim2=1)",
    "permute_copy": "nd.transpose(data, axes=(2, 0, 1))",
    "squeeze_copy": "nd.squeeze(data)",
    "unsqueeze_copy": "nd.expand_dims(data, axis=1)",
    "expand_copy": "nd.broadcast_to(data, shape=size)",
    # in another order
    "transpose_contiguous": "nd.transpose(data)",
    "permute_contiguous": "nd.transpose(data, axes=(0, 2, 3, 1))",
    "swap_heads": "nd.swapaxes(data, dim1=1, dim2=2)",
    "flip": "nd.flip(data, axis=dims)",
    "fliplr": "mnp.fliplr(data)",
    "flipud": "mnp.flipud(data)",
    "rot90": "mnp.rot90(data, k)",
    "roll": "mnp.roll(data, shifts, dims)",
    "roll_flat": "mnp.roll(data, shifts)",
    "repeat": "nd.tile(data, reps=repeats)",
    "tile": "nd.tile(data, reps=dims)",
    "repeat_interleave": "nd.repeat(data, repeats=repeats, axis=1)",
    "narrow_copy": "nd.slice_axis(data, axis=1, begin=start, end=start + length)",
    "unfold": "nd.im2col(data, kernel=(kernel_size,) * 2, pad=(padding,) * 2, stride=(stride,) * 2)",
    "fold": "nd.col2im(data, output_size, (kernel_size,) * 2, pad=(padding,) * 2, stride=(stride,) * 2)",
    # triangles and diagonals
    "tril": "mnp.tril(data)",
    "diag": "nd.diag(data)",
    "diag_matrix": "nd.diag(data)",
    "diagflat": "mnp.diagflat(data)",
    "diag_embed": "nd.linalg.makediag(data)",
}
