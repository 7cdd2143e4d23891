"""How OpenVINO writes what moves or converts values without computing: shapes, joins and splits, conversion."""

from __future__ import annotations

from collections.abc import Mapping


def _flip(axes: str, count: int) -> str:
    last, step = [-1] * count, [-1] * count
    return f"op.slice(data, {last}, [np.iinfo(np.int64).min] * {count}, {step}, {axes})"


SHAPING = {
    "atleast_2d": "op.unsqueeze(data, [0])",
    "atleast_3d": "op.unsqueeze(data, [2])",
    "broadcast_to": "op.broadcast(data, list(size))",
    "channel_shuffle": "op.shuffle_channels(data, 1, groups)",
    "expand": "op.broadcast(data, list(size))",
    "flatten": "op.reshape(data, [data.shape[0], -1], False)",
    "flip": _flip("list(dims)", 2),
    "fliplr": _flip("[1]", 1),
    "flipud": _flip("[0]", 1),
    "fold": (
        "op.col2im(data, list(output_size), [kernel_size] * 2, [stride] * 2, [1, 1], [padding] * 2, [padding] * 2)"
    ),
    "movedim": "op.transpose(data, [1, 2, 0])",
    "narrow_copy": "op.slice(data, [start], [start + length], [1], [1])",
    "permute": "op.transpose(data, list(dims))",
    "permute_contiguous": "op.transpose(data, [0, 2, 3, 1])",
    "pixel_shuffle": "op.depth_to_space(data, 'depth_first', factor)",
    "pixel_unshuffle": "op.space_to_depth(data, 'depth_first', factor)",
    "ravel": "op.reshape(data, [-1], False)",
    "repeat": "op.tile(data, list(repeats))",
    "reshape": "op.reshape(data, [-1], False)",
    "roll": "op.roll(data, list(shifts), list(dims))",
    "rot90": _flip("[0]", 1).replace("data", "op.transpose(data, [1, 0])"),
    "squeeze": "op.squeeze(data, [1, 3])",
    "squeeze_dim": "op.squeeze(data, [dim])",
    "swap_heads": "op.transpose(data, [0, 2, 1, 3])",
    "swapaxes": "op.transpose(data, [1, 0])",
    "t": "op.transpose(data, [1, 0])",
    "tile": "op.tile(data, [1, *dims])",
    "transpose": "op.transpose(data, [1, 0])",
    "transpose_contiguous": "op.transpose(data, [1, 0])",
    "unflatten": "op.reshape(data, [*sizes, -1], False)",
    "unsqueeze": "op.unsqueeze(data, [dim])",
    "view": "op.reshape(data, [-1], False)",
}


def _between(axis: int) -> str:
    """A split at given places."""
    return f"op.variadic_split(data, {axis}, np.diff([0, *sections, data.shape[{axis}]]))"


def _pad(mode: str, dims: int) -> str:
    each = f"[0] * 2 + [padding] * {dims}"
    return f"op.pad(data, {each}, {each}, '{mode}')"


def _stack(axis: str) -> str:
    parts = ", ".join(f"op.unsqueeze({name}, [{axis}])" for name in ("first", "second", "third"))
    return f"op.concat([{parts}], {axis})"


JOINING = {
    "cat": "op.concat([first, second, third], dim)",
    "cat_channels": "op.concat([first, second], dim)",
    "cat_cols": "op.concat([first, second, third], dim)",
    "cat_vectors": "op.concat([first, second, third], 0)",
    "chunk": "op.split(data, 0, chunks)",
    "column_stack": "op.concat([op.unsqueeze(first, [1]), second, third], 1)",
    "dsplit": _between(2),
    "dstack": _stack("2"),
    "hsplit": _between(1),
    "hstack": "op.concat([first, second, third], 1)",
    "meshgrid": (
        "(lambda shape: [op.broadcast(op.unsqueeze(first, [1]), shape), op.broadcast(second, shape)])"
        "([first.shape[0], second.shape[0]])"
    ),
    "pad_constant": _pad("constant", 2),
    "pad_constant_1d": _pad("constant", 1),
    "pad_reflect": _pad("reflect", 2),
    "pad_reflect_1d": _pad("reflect", 1),
    "pad_reflect_3d": _pad("reflect", 3),
    "pad_replicate": _pad("edge", 2),
    "pad_replicate_3d": _pad("edge", 3),
    "split": "op.split(data, 0, data.shape[0] // split_size)",
    "split_sizes": "op.variadic_split(data, 0, sections)",
    "stack": _stack("dim"),
    "stack_last": _stack("dim"),
    "tensor_split": (
        "op.variadic_split(data, 0, [len(part) for part in np.array_split(range(data.shape[0]), sections)])"
    ),
    "unbind": "[op.squeeze(part, [dim]) for part in op.split(data, dim, data.shape[dim]).outputs()]",
    "vsplit": _between(0),
    "vstack": "op.concat([first, second, third], 0)",
}

CASTS = {
    "bool_to_float32": "f32",
    "bool_to_int64": "i64",
    "float16_to_float32": "f32",
    "int32_to_float32": "f32",
    "int64_to_bool": "boolean",
    "int64_to_float32": "f32",
    "int64_to_int32": "i32",
    "int8_to_float32": "f32",
    "to_bool": "boolean",
    "to_float16": "f16",
    "to_int32": "i32",
    "to_int64": "i64",
    "to_int8": "i8",
    "to_uint8": "u8",
    "uint8_to_float32": "f32",
}
# from the lowest to the highest of 256 whole numbers, in steps of `scale`
STEPPED = (
    "(lambda low, high: op.fake_quantize(data, low, high, low, high, 256))"
    "(real((-128 - zero_point) * scale), real((127 - zero_point) * scale))"
)
CONVERSION = {
    **{name: f"op.convert(data, '{kind}')" for name, kind in CASTS.items()},
    "contiguous": "op.slice(data, [0], [data.shape[1]], [2], [1])",
    "fake_quantize_per_tensor_affine": STEPPED,
    "from_channels_last": "op.transpose(data, [0, 3, 1, 2])",
    "quantize_dequantize": STEPPED,
}

RANDOM = {
    "multinomial": "op.multinomial(data, [num_samples], 'i64', True, False)",
    "multinomial_once": "op.multinomial(data, [num_samples], 'i64', False, False)",
    "rand": "op.random_uniform(list(size), real(0.0), real(1.0), 'f32')",
    "rand_like": "op.random_uniform(list(like.shape), real(0.0), real(1.0), 'f32')",
    "randint": "op.random_uniform(list(size), np.int64(0), np.int64(100), 'i64')",
    "randint_like": "op.random_uniform(list(like.shape), np.int64(0), np.int64(100), 'i64')",
}

REARRANGING: Mapping[str, str] = {**SHAPING, **JOINING, **CONVERSION, **RANDOM}
