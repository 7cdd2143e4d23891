"""How ONNX writes layers: products and norms of matrices, convolutions, pooling, normalisation."""

from __future__ import annotations

from collections.abc import Mapping

GEMM = {
    "addbmm": "op.Add(bias, op.ReduceSum(op.MatMul(lhs, rhs), [0], keepdims=0))",
    "addmm": "op.Gemm(lhs, rhs, bias)",
    "addmv": "op.Add(bias, op.MatMul(lhs, rhs))",
    "addr": "op.Add(bias, op.Einsum(lhs, rhs, equation='i,j->ij'))",
    "baddbmm": "op.Add(bias, op.MatMul(lhs, rhs))",
    "bilinear": "op.Add(op.Einsum(lhs, weight, rhs, equation='ni,oij,nj->no'), bias)",
    "bmm": "op.MatMul(lhs, rhs)",
    "dot": "op.MatMul(lhs, rhs)",
    "inner": "op.Gemm(lhs, rhs, transB=1)",
    "int_mm": "op.MatMulInteger(lhs, rhs)",
    "linalg_multi_dot": "op.MatMul(first, op.MatMul(second, third))",
    "linalg_vecdot": "op.ReduceSum(op.Mul(lhs, rhs), [-1], keepdims=0)",
    "linear": "op.Gemm(data, weight, bias, transB=1)",
    "linear_classifier": "op.Gemm(data, weight, bias, transB=1)",
    "linear_no_bias": "op.Gemm(data, weight, transB=1)",
    "linear_sequence": "op.Add(op.MatMul(data, op.Transpose(weight, perm=[1, 0])), bias)",
    "matmul": "op.MatMul(lhs, rhs)",
    "matmul_batched": "op.MatMul(lhs, rhs)",
    "matmul_broadcast": "op.MatMul(lhs, rhs)",
    "matmul_deep": "op.MatMul(lhs, rhs)",
    "matmul_rank_one": "op.MatMul(lhs, rhs)",
    "matmul_tall": "op.MatMul(lhs, rhs)",
    "matmul_transposed": "op.MatMul(lhs, op.Transpose(rhs, perm=[1, 0]))",
    "matmul_vector": "op.MatMul(lhs, rhs)",
    "mm": "op.MatMul(lhs, rhs)",
    "mv": "op.MatMul(lhs, rhs)",
    "outer": "op.Einsum(lhs, rhs, equation='i,j->ij')",
    "tensordot": "op.Einsum(lhs, rhs, equation='ijk,jkl->il')",
}


def _window(dims: int, *attributes: str) -> str:
    """Attributes of a window, each the same number in every dim."""
    written = {
        "kernel_size": f"kernel_shape=[kernel_size] * {dims}",
        "stride": f"strides=[stride] * {dims}",
        "padding": f"pads=[padding] * {2 * dims}",
        "dilation": f"dilations=[dilation] * {dims}",
        "output_padding": f"output_padding=[output_padding] * {dims}",
        "groups": "group=groups",
    }
    return ", ".join(written[name] for name in attributes)


CONVOLUTION = {
    "conv1d": f"op.Conv(data, weight, {_window(1, 'stride', 'padding')})",
    "conv1d_1x1": f"op.Conv(data, weight, {_window(1, 'stride', 'padding')})",
    "conv1d_depthwise": f"op.Conv(data, weight, {_window(1, 'padding', 'groups')})",
    "conv1d_dilated": f"op.Conv(data, weight, {_window(1, 'padding', 'dilation')})",
    "conv1d_stem": f"op.Conv(data, weight, {_window(1, 'stride', 'padding')})",
    "conv2d": f"op.Conv(data, weight, {_window(2, 'stride', 'padding')})",
    "conv2d_1x1": f"op.Conv(data, weight, {_window(2, 'stride', 'padding')})",
    "conv2d_1x1_strided": f"op.Conv(data, weight, {_window(2, 'stride', 'padding')})",
    "conv2d_1x7": "op.Conv(data, weight, strides=[stride] * 2, pads=[*padding, *padding])",
    "conv2d_5x5": f"op.Conv(data, weight, {_window(2, 'stride', 'padding')})",
    "conv2d_bias": f"op.Conv(data, weight, bias, {_window(2, 'stride', 'padding')})",
    "conv2d_deep": f"op.Conv(data, weight, {_window(2, 'stride', 'padding')})",
    "conv2d_depthwise": f"op.Conv(data, weight, {_window(2, 'padding', 'groups')})",
    "conv2d_depthwise_7x7": f"op.Conv(data, weight, {_window(2, 'padding', 'groups')})",
    "conv2d_dilated": f"op.Conv(data, weight, {_window(2, 'padding', 'dilation')})",
    "conv2d_grouped": f"op.Conv(data, weight, {_window(2, 'padding', 'groups')})",
    "conv2d_patches": f"op.Conv(data, weight, bias, {_window(2, 'stride', 'padding')})",
    "conv2d_stem": f"op.Conv(data, weight, {_window(2, 'stride', 'padding')})",
    "conv2d_strided": f"op.Conv(data, weight, {_window(2, 'stride', 'padding')})",
    "conv3d": f"op.Conv(data, weight, {_window(3, 'stride', 'padding')})",
    "conv3d_1x1": f"op.Conv(data, weight, {_window(3, 'stride', 'padding')})",
    "conv3d_depthwise": f"op.Conv(data, weight, {_window(3, 'padding', 'groups')})",
    "conv3d_strided": f"op.Conv(data, weight, {_window(3, 'stride', 'padding')})",
    "conv_transpose1d": f"op.ConvTranspose(data, weight, {_window(1, 'stride', 'padding')})",
    "conv_transpose2d": f"op.ConvTranspose(data, weight, {_window(2, 'stride', 'padding')})",
    "conv_transpose2d_bias": f"op.ConvTranspose(data, weight, bias, {_window(2, 'stride', 'padding')})",
    "conv_transpose2d_depthwise": f"op.ConvTranspose(data, weight, {_window(2, 'stride', 'padding', 'groups')})",
    "conv_transpose2d_output_padding": (
        f"op.ConvTranspose(data, weight, {_window(2, 'stride', 'padding', 'output_padding')})"
    ),
    "conv_transpose3d": f"op.ConvTranspose(data, weight, {_window(3, 'stride', 'padding')})",
}

POOLING = {
    **{f"max_pool{dims}d": f"op.MaxPool(data, {_window(dims, 'kernel_size', 'stride')})" for dims in (1, 2, 3)},
    **{f"avg_pool{dims}d": f"op.AveragePool(data, {_window(dims, 'kernel_size', 'stride')})" for dims in (1, 2, 3)},
    **{
        f"lp_pool{dims}d": f"op.LpPool(data, p=int(norm_type), {_window(dims, 'kernel_size', 'stride')})"
        for dims in (1, 2, 3)
    },
    "avg_pool2d_3x3": f"op.AveragePool(data, count_include_pad=1, {_window(2, 'kernel_size', 'stride', 'padding')})",
    "avg_pool2d_without_padding": f"op.AveragePool(data, {_window(2, 'kernel_size', 'stride', 'padding')})",
    "global_avg_pool2d": "op.GlobalAveragePool(data)",
    "global_max_pool2d": "op.GlobalMaxPool(data)",
    "max_pool2d_dilated": f"op.MaxPool(data, {_window(2, 'kernel_size', 'stride', 'padding', 'dilation')})",
    "max_pool2d_stem": f"op.MaxPool(data, {_window(2, 'kernel_size', 'stride', 'padding')})",
}

BATCH_NORM = "op.BatchNormalization(data, weight, bias, running_mean, running_var, epsilon=eps)"
NORMALISATION = {
    "batch_norm_1d_eval": BATCH_NORM,
    "batch_norm_3d_eval": BATCH_NORM,
    "batch_norm_eval": BATCH_NORM,
    # the operator of that name has no inferred type, so exporters write it so
    "group_norm": (
        "op.Add(op.Mul(op.Reshape(op.InstanceNormalization(op.Reshape(data, [0, num_groups, -1]),"
        " np.ones(num_groups), np.zeros(num_groups), epsilon=eps), data.shape),"
        " op.Reshape(weight, [-1, 1, 1])), op.Reshape(bias, [-1, 1, 1]))"
    ),
    "instance_norm": "op.InstanceNormalization(data, weight, bias, epsilon=eps)",
    "instance_norm_1d": "op.InstanceNormalization(data, weight, bias, epsilon=eps)",
    "layer_norm": "op.LayerNormalization(data, weight, bias, epsilon=eps)",
    "layer_norm_images": "op.LayerNormalization(data, weight, bias, axis=1, epsilon=eps)",
    "layer_norm_no_affine": "op.LayerNormalization(data, np.ones(data.shape[-1]), epsilon=eps)",
    "local_response_norm": "op.LRN(data, size=size, alpha=alpha, beta=beta, bias=k)",
    "native_layer_norm": "op.LayerNormalization(data, weight, bias, epsilon=eps, outputs=3)",
    "rms_norm": "op.RMSNormalization(data, weight, epsilon=eps)",
    "weight_norm": "op.Mul(data, op.Div(magnitude, op.ReduceL2(data, [1])))",
}

LINEAR_ALGEBRA = {
    "linalg_det": "op.Det(data)",
    "linalg_det_batched": "op.Det(data)",
    "linalg_matrix_norm": "op.ReduceL2(data, keepdims=0)",
    "linalg_matrix_norm_one": "op.ReduceMax(op.ReduceL1(data, [0], keepdims=0), keepdims=0)",
    "linalg_norm": "op.ReduceL2(data, keepdims=0)",
    "linalg_vector_norm": "op.ReduceL2(data, [dim], keepdims=0)",
}

LAYERS: Mapping[str, str] = {**GEMM, **LINEAR_ALGEBRA, **CONVOLUTION, **POOLING, **NORMALISATION}
