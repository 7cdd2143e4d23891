"""ONNX expressions of layers: products and norms of matrices, convolutions, pooling, normalisation."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

GEMM_EXPRESSIONS = {
    **dict.fromkeys(("bmm", "dot", "matmul", "mm", "mv"), "op.MatMul(lhs, rhs)"),
    "addbmm": "op.Add(bias, op.ReduceSum(op.MatMul(lhs, rhs), [0], keepdims=0))",
    "addmm": "op.Gemm(lhs, rhs, bias)",
    "addmv": "op.Add(bias, op.MatMul(lhs, rhs))",
    "addr": "op.Add(bias, op.Einsum(lhs, rhs, equation='i,j->ij'))",
    "baddbmm": "op.Add(bias, op.MatMul(lhs, rhs))",
    "bilinear": "op.Add(op.Einsum(lhs, weight, rhs, equation='ni,oij,nj->no'), bias)",
    "inner": "op.Gemm(lhs, rhs, transB=1)",
    "int_mm": "op.MatMulInteger(lhs, rhs)",
    "linalg_multi_dot": "op.MatMul(first, op.MatMul(second, third))",
    "linalg_vecdot": "op.ReduceSum(op.Mul(lhs, rhs), [-1], keepdims=0)",
    "linear": "op.Gemm(data, weight, bias, transB=1)",
    "linear_no_bias": "op.Gemm(data, weight, transB=1)",
    "linear_sequence": "op.Add(op.MatMul(data, op.Transpose(weight, perm=[1, 0])), bias)",
    "matmul_transposed": "op.MatMul(lhs, op.Transpose(rhs, perm=[1, 0]))",
    "outer": "op.Einsum(lhs, rhs, equation='i,j->ij')",
    "tensordot": "op.Einsum(lhs, rhs, equation='ijk,jkl->il')",
}


def _write_window(dims: int, *attributes: str) -> str:
    """Return the source of window attributes, such as `strides=[stride] * 2`; each is one number for all dims."""
    written = {
        "kernel_size": f"kernel_shape=[kernel_size] * {dims}",
        "stride": f"strides=[stride] * {dims}",
        "padding": f"pads=[padding] * {2 * dims}",
        "dilation": f"dilations=[dilation] * {dims}",
        "output_padding": f"output_padding=[output_padding] * {dims}",
        "groups": "group=groups",
    }
    return ", ".join(written[name] for name in attributes)


def _write_conv(dims: int, *attributes: str, inputs: str = "data, weight", kind: str = "Conv") -> str:
    return f"op.{kind}({inputs}, {_write_window(dims, *attributes)})"


_write_transposed = partial(_write_conv, kind="ConvTranspose")
_INPUTS_WITH_BIAS = "data, weight, bias"
_STRIDE_AND_PADDING, _PADDING_AND_DILATION, _PADDING_AND_GROUPS = (
    ("stride", "padding"),
    ("padding", "dilation"),
    ("padding", "groups"),
)

CONVOLUTION_EXPRESSIONS = {
    **{f"conv{dims}d": _write_conv(dims, *_STRIDE_AND_PADDING) for dims in (1, 2, 3)},
    "conv1d_depthwise": _write_conv(1, *_PADDING_AND_GROUPS),
    "conv1d_dilated": _write_conv(1, *_PADDING_AND_DILATION),
    "conv2d_bias": _write_conv(2, *_STRIDE_AND_PADDING, inputs=_INPUTS_WITH_BIAS),
    "conv2d_grouped": _write_conv(2, *_PADDING_AND_GROUPS),
    "conv2d_1x7": "op.Conv(data, weight, strides=[stride] * 2, pads=[*padding, *padding])",
    "conv2d_dilated": _write_conv(2, *_PADDING_AND_DILATION),
    "conv3d_depthwise": _write_conv(3, *_PADDING_AND_GROUPS),
    **{f"conv_transpose{dims}d": _write_transposed(dims, *_STRIDE_AND_PADDING) for dims in (1, 2, 3)},
    "conv_transpose2d_bias": _write_transposed(2, *_STRIDE_AND_PADDING, inputs=_INPUTS_WITH_BIAS),
    "conv_transpose2d_depthwise": _write_transposed(2, *_STRIDE_AND_PADDING, "groups"),
    "conv_transpose2d_output_padding": _write_transposed(2, *_STRIDE_AND_PADDING, "output_padding"),
}


def _write_pool(kind: str, dims: int, *attributes: str, extra: str = "") -> str:
    return f"op.{kind}(data, {extra}{_write_window(dims, 'kernel_size', 'stride', *attributes)})"


POOLING_EXPRESSIONS = {
    **{f"max_pool{dims}d": _write_pool("MaxPool", dims) for dims in (1, 2, 3)},
    **{f"avg_pool{dims}d": _write_pool("AveragePool", dims) for dims in (1, 2, 3)},
    **{f"lp_pool{dims}d": _write_pool("LpPool", dims, extra="p=int(norm_type), ") for dims in (1, 2, 3)},
    "avg_pool2d_3x3": _write_pool("AveragePool", 2, "padding", extra="count_include_pad=1, "),
    "avg_pool2d_without_padding": _write_pool("AveragePool", 2, "padding"),
    "global_avg_pool2d": "op.GlobalAveragePool(data)",
    "global_max_pool2d": "op.GlobalMaxPool(data)",
    "max_pool2d_dilated": _write_pool("MaxPool", 2, "padding", "dilation"),
    "max_pool2d_stem": _write_pool("MaxPool", 2, "padding"),
}

BATCH_NORM_EVAL = "op.BatchNormalization(data, weight, bias, running_mean, running_var, epsilon=eps)"
NORMALISATION_EXPRESSIONS = {
    **{f"batch_norm{variant}_eval": BATCH_NORM_EVAL for variant in ("", "_1d", "_3d")},
    # ONNX infers no type for GroupNormalization, so exporters write it with InstanceNormalization
    "group_norm": (
        "op.Add(op.Mul(op.Reshape(op.InstanceNormalization(op.Reshape(data, [0, num_groups, -1]),"
        " np.ones(num_groups), np.zeros(num_groups), epsilon=eps), data.shape),"
        " op.Reshape(weight, [-1, 1, 1])), op.Reshape(bias, [-1, 1, 1]))"
    ),
    "instance_norm": "op.InstanceNormalization(data, weight, bias, epsilon=eps)",
    "layer_norm": "op.LayerNormalization(data, weight, bias, epsilon=eps)",
    "layer_norm_images": "op.LayerNormalization(data, weight, bias, axis=1, epsilon=eps)",
    "layer_norm_no_affine": "op.LayerNormalization(data, np.ones(data.shape[-1]), epsilon=eps)",
    "local_response_norm": "op.LRN(data, size=size, alpha=alpha, beta=beta, bias=k)",
    "native_layer_norm": "op.LayerNormalization(data, weight, bias, epsilon=eps, outputs=3)",
    "rms_norm": "op.RMSNormalization(data, weight, epsilon=eps)",
    "weight_norm": "op.Mul(data, op.Div(magnitude, op.ReduceL2(data, [1])))",
}

LINEAR_ALGEBRA_EXPRESSIONS = {
    "linalg_det": "op.Det(data)",
    "linalg_matrix_norm": "op.ReduceL2(data, keepdims=0)",
    "linalg_matrix_norm_one": "op.ReduceMax(op.ReduceL1(data, [0], keepdims=0), keepdims=0)",
    "linalg_norm": "op.ReduceL2(data, keepdims=0)",
    "linalg_vector_norm": "op.ReduceL2(data, [dim], keepdims=0)",
}

LAYER_EXPRESSIONS: Mapping[str, str] = {
    **GEMM_EXPRESSIONS,
    **LINEAR_ALGEBRA_EXPRESSIONS,
    **CONVOLUTION_EXPRESSIONS,
    **POOLING_EXPRESSIONS,
    **NORMALISATION_EXPRESSIONS,
}
