"""How ONNX writes what moves or makes values without computing: shapes, joins and splits, creation, conversion."""

from __future__ import annotations

from collections.abc import Mapping

START = "np.iinfo(np.int64).min"  # where a slice that runs backwards ends
SHAPING = {
    "atleast_2d": "op.Unsqueeze(data, [0])",
    "atleast_3d": "op.Unsqueeze(data, [2])",
    "broadcast_to": "op.Expand(data, size)",
    "channel_shuffle": (
        "op.Reshape(op.Transpose(op.Reshape(data, [0, groups, -1, *data.shape[2:]]), perm=[0, 2, 1, 3, 4]), data.shape)"
    ),
    "expand": "op.Expand(data, size)",
    "flatten": "op.Flatten(data)",
    "flip": f"op.Slice(data, [-1, -1], [{START}] * 2, dims, [-1, -1])",
    "fliplr": f"op.Slice(data, [-1], [{START}], [1], [-1])",
    "flipud": f"op.Slice(data, [-1], [{START}], [0], [-1])",
    "fold": (
        "op.Col2Im(data, output_size, [kernel_size] * 2, pads=[padding] * 4, strides=[stride] * 2, dilations=[1, 1])"
    ),
    "movedim": "op.Transpose(data, perm=[1, 2, 0])",
    "narrow_copy": "op.Slice(data, [start], [start + length], [1])",
    "permute": "op.Transpose(data, perm=dims)",
    "permute_contiguous": "op.Transpose(data, perm=[0, 2, 3, 1])",
    "pixel_shuffle": "op.DepthToSpace(data, blocksize=factor, mode='CRD')",
    "ravel": "op.Reshape(data, [-1])",
    "repeat": "op.Tile(data, repeats)",
    "reshape": "op.Reshape(data, [-1])",
    "rot90": f"op.Slice(op.Transpose(data, perm=[1, 0]), [-1], [{START}], [0], [-1])",
    "squeeze": "op.Squeeze(data)",
    "squeeze_dim": "op.Squeeze(data, [dim])",
    "swap_heads": "op.Transpose(data, perm=[0, 2, 1, 3])",
    "swapaxes": "op.Transpose(data, perm=[1, 0])",
    "t": "op.Transpose(data, perm=[1, 0])",
    "tile": "op.Tile(data, [1, *dims])",
    "transpose": "op.Transpose(data, perm=[1, 0])",
    "transpose_contiguous": "op.Transpose(data, perm=[1, 0])",
    "tril": "op.Trilu(data, upper=0)",
    "triu": "op.Trilu(data)",
    "unflatten": "op.Reshape(data, [*sizes, -1])",
    "unsqueeze": "op.Unsqueeze(data, [dim])",
    "view": "op.Reshape(data, [-1])",
}


def _split(sizes: str, axis: str) -> str:
    return f"(lambda sizes: op.Split(data, sizes, axis={axis}, outputs=len(sizes)))({sizes})"


def _between(axis: int) -> str:
    """A split at given places."""
    return _split(f"np.diff([0, *sections, data.shape[{axis}]])", str(axis))


def _pad(mode: str, dims: int) -> str:
    return f"op.Pad(data, ([0] * 2 + [padding] * {dims}) * 2, mode='{mode}')"


def _stack(axis: str) -> str:
    parts = ", ".join(f"op.Unsqueeze({name}, [{axis}])" for name in ("first", "second", "third"))
    return f"op.Concat({parts}, axis={axis})"


JOINING = {
    "broadcast_tensors": "(op.Expand(first, third.shape), op.Expand(second, third.shape), op.Identity(third))",
    "cat": "op.Concat(first, second, third, axis=dim)",
    "cat_channels": "op.Concat(first, second, axis=dim)",
    "cat_cols": "op.Concat(first, second, third, axis=dim)",
    "cat_vectors": "op.Concat(first, second, third, axis=0)",
    "chunk": "op.Split(data, axis=0, num_outputs=chunks, outputs=chunks)",
    "column_stack": "op.Concat(op.Unsqueeze(first, [1]), second, third, axis=1)",
    "dsplit": _between(2),
    "dstack": _stack("2"),
    "hsplit": _between(1),
    "hstack": "op.Concat(first, second, third, axis=1)",
    "meshgrid": (
        "(lambda shape: (op.Expand(op.Unsqueeze(first, [1]), shape), op.Expand(second, shape)))"
        "([first.shape[0], second.shape[0]])"
    ),
    "pad_circular": _pad("wrap", 2),
    "pad_constant": _pad("constant", 2),
    "pad_constant_1d": _pad("constant", 1),
    "pad_reflect": _pad("reflect", 2),
    "pad_reflect_1d": _pad("reflect", 1),
    "pad_reflect_3d": _pad("reflect", 3),
    "pad_replicate": _pad("edge", 2),
    "pad_replicate_3d": _pad("edge", 3),
    "split": (
        "(lambda count: op.Split(data, axis=0, num_outputs=count, outputs=count))(-(-data.shape[0] // split_size))"
    ),
    "split_sizes": _split("sections", "0"),
    "stack": _stack("dim"),
    "stack_last": _stack("dim"),
    "tensor_split": _split("[len(part) for part in np.array_split(range(data.shape[0]), sections)]", "0"),
    "unbind": (
        "[op.Squeeze(part, [dim]) for part in"
        " op.Split(data, axis=dim, num_outputs=data.shape[dim], outputs=data.shape[dim])]"
    ),
    "vsplit": _between(0),
    "vstack": "op.Concat(first, second, third, axis=0)",
}

CREATION = {
    "arange": "op.Range(0, n, 1)",
    "arange_float": "op.Range(0.0, float(n), 1.0)",
    "blackman_window": "op.BlackmanWindow(n, periodic=0, output_datatype=element)",
    "clone": "op.Identity(data)",
    "eye": "op.EyeLike(op.ConstantOfShape([n, n], value=filling(0.0)))",
    "full": "op.ConstantOfShape(size, value=filling(0.5))",
    "full_like": "op.ConstantOfShape(op.Shape(like), value=filling(0.5))",
    "hann_window": "op.HannWindow(n, periodic=0, output_datatype=element)",
    "new_full": "op.ConstantOfShape(size, value=filling(0.5))",
    "new_zeros": "op.ConstantOfShape(size, value=filling(0.0))",
    "ones": "op.ConstantOfShape(size, value=filling(1.0))",
    "ones_like": "op.ConstantOfShape(op.Shape(like), value=filling(1.0))",
    "zeros": "op.ConstantOfShape(size, value=filling(0.0))",
    "zeros_like": "op.ConstantOfShape(op.Shape(like), value=filling(0.0))",
}

CASTS = {
    "bool_to_float32": "FLOAT",
    "bool_to_int64": "INT64",
    "float16_to_float32": "FLOAT",
    "float64_to_float32": "FLOAT",
    "int32_to_float32": "FLOAT",
    "int64_to_bool": "BOOL",
    "int64_to_float32": "FLOAT",
    "int64_to_int32": "INT32",
    "int8_to_float32": "FLOAT",
    "to_bool": "BOOL",
    "to_float16": "FLOAT16",
    "to_float64": "DOUBLE",
    "to_int32": "INT32",
    "to_int64": "INT64",
    "to_int8": "INT8",
    "to_uint8": "UINT8",
    "uint8_to_float32": "FLOAT",
}
# to whole numbers and back
STEPPED = "op.DequantizeLinear(op.QuantizeLinear({0}), {1})"
PER_TENSOR = STEPPED.format("data, scale, np.int8(zero_point)", "scale, np.int8(zero_point)")
PER_CHANNEL = (
    "(lambda zeros: op.DequantizeLinear(op.QuantizeLinear(data, scales, zeros, axis=0), scales, zeros, axis=0))"
    "(op.Cast(zero_points, to=types.INT8))"
)
CONVERSION = {
    **{name: f"op.Cast(data, to=types.{kind})" for name, kind in CASTS.items()},
    "contiguous": "op.Slice(data, [0], [data.shape[1]], [1], [2])",
    "fake_quantize_per_channel_affine": PER_CHANNEL,
    "fake_quantize_per_tensor_affine": PER_TENSOR,
    "from_channels_last": "op.Transpose(data, perm=[0, 3, 1, 2])",
    "quantize_dequantize": PER_TENSOR,
}

RANDOM = {
    "bernoulli": "op.Bernoulli(data)",
    "dropout": "op.Dropout(data, p, True)",
    "multinomial": "op.Multinomial(op.Log(data), sample_size=num_samples)",
    "normal": "op.Add(mean, op.Mul(std, op.RandomNormalLike(mean)))",
    "rand": "op.RandomUniform(shape=size, dtype=element)",
    "rand_like": "op.RandomUniformLike(like)",
    "randn": "op.RandomNormal(shape=size, dtype=element)",
    "randn_like": "op.RandomNormalLike(like)",
}

REARRANGING: Mapping[str, str] = {**SHAPING, **JOINING, **CREATION, **CONVERSION, **RANDOM}
