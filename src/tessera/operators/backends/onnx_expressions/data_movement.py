"""ONNX expressions of operators that copy, create, draw at random or convert values."""

from __future__ import annotations

from collections.abc import Mapping

SLICE_END = "np.iinfo(np.int64).min"  # end of a slice with a negative step that includes index 0
SHAPING_EXPRESSIONS = {
    "atleast_2d": "op.Unsqueeze(data, [0])",
    "atleast_3d": "op.Unsqueeze(data, [2])",
    "broadcast_to": "op.Expand(data, size)",
    "channel_shuffle": (
        "op.Reshape(op.Transpose(op.Reshape(data, [0, groups, -1, *data.shape[2:]]), perm=[0, 2, 1, 3, 4]), data.shape)"
    ),
    "expand": "op.Expand(data, size)",
    "flatten": "op.Flatten(data)",
    "flip": f"op.Slice(data, [-1, -1], [{SLICE_END}] * 2, dims, [-1, -1])",
    "fliplr": f"op.Slice(data, [-1], [{SLICE_END}], [1], [-1])",
    "flipud": f"op.Slice(data, [-1], [{SLICE_END}], [0], [-1])",
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
    "rot90": f"op.Slice(op.Transpose(data, perm=[1, 0]), [-1], [{SLICE_END}], [0], [-1])",
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


def _write_split(sizes: str, axis: str) -> str:
    return f"(lambda sizes: op.Split(data, sizes, axis={axis}, outputs=len(sizes)))({sizes})"


def _write_split_at(axis: int) -> str:
    """Return the source of a split along `axis` at the indices `sections`."""
    return _write_split(f"np.diff([0, *sections, data.shape[{axis}]])", str(axis))


def _write_pad(mode: str, dims: int) -> str:
    return f"op.Pad(data, ([0] * 2 + [padding] * {dims}) * 2, mode='{mode}')"


def _write_stack(axis: str) -> str:
    parts = ", ".join(f"op.Unsqueeze({name}, [{axis}])" for name in ("first", "second", "third"))
    return f"op.Concat({parts}, axis={axis})"


JOINING_EXPRESSIONS = {
    "broadcast_tensors": "(op.Expand(first, third.shape), op.Expand(second, third.shape), op.Identity(third))",
    "cat": "op.Concat(first, second, third, axis=dim)",
    "cat_channels": "op.Concat(first, second, axis=dim)",
    "cat_vectors": "op.Concat(first, second, third, axis=0)",
    "chunk": "op.Split(data, axis=0, num_outputs=chunks, outputs=chunks)",
    "column_stack": "op.Concat(op.Unsqueeze(first, [1]), second, third, axis=1)",
    "dsplit": _write_split_at(2),
    "dstack": _write_stack("2"),
    "hsplit": _write_split_at(1),
    "hstack": "op.Concat(first, second, third, axis=1)",
    "meshgrid": (
        "(lambda shape: (op.Expand(op.Unsqueeze(first, [1]), shape), op.Expand(second, shape)))"
        "([first.shape[0], second.shape[0]])"
    ),
    "pad_circular": _write_pad("wrap", 2),
    "pad_constant": _write_pad("constant", 2),
    "pad_constant_1d": _write_pad("constant", 1),
    "pad_reflect": _write_pad("reflect", 2),
    "pad_reflect_1d": _write_pad("reflect", 1),
    "pad_reflect_3d": _write_pad("reflect", 3),
    "pad_replicate": _write_pad("edge", 2),
    "pad_replicate_3d": _write_pad("edge", 3),
    "split": (
        "(lambda count: op.Split(data, axis=0, num_outputs=count, outputs=count))(-(-data.shape[0] // split_size))"
    ),
    "split_sizes": _write_split("sections", "0"),
    "stack": _write_stack("dim"),
    "tensor_split": _write_split("[len(part) for part in np.array_split(range(data.shape[0]), sections)]", "0"),
    "unbind": (
        "[op.Squeeze(part, [dim]) for part in"
        " op.Split(data, axis=dim, num_outputs=data.shape[dim], outputs=data.shape[dim])]"
    ),
    "vsplit": _write_split_at(0),
    "vstack": "op.Concat(first, second, third, axis=0)",
}

CREATION_EXPRESSIONS = {
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

CAST_TYPES = {
    **{f"to_{name}": name.upper() for name in ("bool", "float16", "int32", "int64", "int8", "uint8")},
    "float64_to_float32": "FLOAT",
    "to_float64": "DOUBLE",
}
# conversions to integers and back
QUANTISE_TEMPLATE = "op.DequantizeLinear(op.QuantizeLinear({0}), {1})"
QUANTISE_PER_TENSOR = QUANTISE_TEMPLATE.format("data, scale, np.int8(zero_point)", "scale, np.int8(zero_point)")
QUANTISE_PER_CHANNEL = (
    "(lambda zeros: op.DequantizeLinear(op.QuantizeLinear(data, scales, zeros, axis=0), scales, zeros, axis=0))"
    "(op.Cast(zero_points, to=types.INT8))"
)
CONVERSION_EXPRESSIONS = {
    **{name: f"op.Cast(data, to=types.{kind})" for name, kind in CAST_TYPES.items()},
    "contiguous": "op.Slice(data, [0], [data.shape[1]], [1], [2])",
    "fake_quantize_per_channel_affine": QUANTISE_PER_CHANNEL,
    "fake_quantize_per_tensor_affine": QUANTISE_PER_TENSOR,
    "from_channels_last": "op.Transpose(data, perm=[0, 3, 1, 2])",
    "quantize_dequantize": QUANTISE_PER_TENSOR,
}

RANDOM_EXPRESSIONS = {
    "bernoulli": "op.Bernoulli(data)",
    "dropout": "op.Dropout(data, p, True)",
    "multinomial": "op.Multinomial(op.Log(data), sample_size=num_samples)",
    "normal": "op.Add(mean, op.Mul(std, op.RandomNormalLike(mean)))",
    "rand": "op.RandomUniform(shape=size, dtype=element)",
    "rand_like": "op.RandomUniformLike(like)",
    "randn": "op.RandomNormal(shape=size, dtype=element)",
    "randn_like": "op.RandomNormalLike(like)",
}

GATHER_EXPRESSIONS = {
    "argwhere": "op.Transpose(op.NonZero(data), perm=[1, 0])",
    "boolean_mask": "op.Compress(data, op.Reshape(mask, [-1]))",
    "gather": "op.GatherElements(data, index, axis=dim)",
    "index_cols": "op.Gather(data, index, axis=1)",
    "index_points": "op.GatherND(data, op.Concat(op.Unsqueeze(rows, [1]), op.Unsqueeze(index, [1]), axis=1))",
    "index_rows": "op.Gather(data, index)",
    "index_select": "op.Gather(data, index, axis=dim)",
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

ROW_INDEX = "op.Unsqueeze(index, [1])"
SCATTER_EXPRESSIONS = {
    "index_add": f"op.ScatterND(data, {ROW_INDEX}, source, reduction='add')",
    "index_copy": f"op.ScatterND(data, {ROW_INDEX}, source)",
    "index_fill": f"op.ScatterND(data, {ROW_INDEX}, op.Expand(value, [index.shape[0], data.shape[1]]))",
    "index_put": f"op.ScatterND(data, {ROW_INDEX}, source)",
    "index_put_accumulate": f"op.ScatterND(data, {ROW_INDEX}, source, reduction='add')",
    "index_reduce_amax": f"op.ScatterND(data, {ROW_INDEX}, source, reduction='max')",
    "masked_fill": "op.Where(mask, value, data)",
    "put": "op.Reshape(op.ScatterElements(op.Reshape(data, [-1]), index, source), data.shape)",
    "scatter": "op.ScatterElements(data, index, source, axis=dim)",
    "scatter_add": "op.ScatterElements(data, index, source, axis=dim, reduction='add')",
    "scatter_reduce_amax": "op.ScatterElements(data, index, source, axis=dim, reduction='max')",
    "scatter_value": "op.ScatterElements(data, index, op.Expand(value, index.shape), axis=dim)",
}

DATA_MOVEMENT_EXPRESSIONS: Mapping[str, str] = {
    **SHAPING_EXPRESSIONS,
    **JOINING_EXPRESSIONS,
    **CREATION_EXPRESSIONS,
    **CONVERSION_EXPRESSIONS,
    **RANDOM_EXPRESSIONS,
    **GATHER_EXPRESSIONS,
    **SCATTER_EXPRESSIONS,
}
