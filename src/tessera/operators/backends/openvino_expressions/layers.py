"""How OpenVINO writes layers: products and norms of matrices, convolutions, pooling, normalisation."""

from __future__ import annotations

from collections.abc import Mapping

MATMUL = "op.matmul(lhs, rhs, False, False)"
GEMM = {
    "addbmm": f"op.add(bias, op.reduce_sum({MATMUL}, [0], False))",
    "addmm": f"op.add(bias, {MATMUL})",
    "addmv": f"op.add(bias, {MATMUL})",
    "addr": "op.add(bias, op.einsum([lhs, rhs], 'i,j->ij'))",
    "baddbmm": f"op.add(bias, {MATMUL})",
    "bilinear": "op.add(op.einsum([lhs, weight, rhs], 'ni,oij,nj->no'), bias)",
    "bmm": MATMUL,
    "dot": MATMUL,
    "inner": "op.matmul(lhs, rhs, False, True)",
    "linalg_multi_dot": "op.matmul(first, op.matmul(second, third, False, False), False, False)",
    "linalg_vecdot": "op.reduce_sum(op.multiply(lhs, rhs), [-1], False)",
    "linear": "op.add(op.matmul(data, weight, False, True), bias)",
    "linear_classifier": "op.add(op.matmul(data, weight, False, True), bias)",
    "linear_no_bias": "op.matmul(data, weight, False, True)",
    "linear_sequence": "op.add(op.matmul(data, weight, False, True), bias)",
    "matmul": MATMUL,
    "matmul_batched": MATMUL,
    "matmul_broadcast": MATMUL,
    "matmul_deep": MATMUL,
    "matmul_rank_one": MATMUL,
    "matmul_tall": MATMUL,
    "matmul_transposed": "op.matmul(lhs, rhs, False, True)",
    "matmul_vector": MATMUL,
    "mm": MATMUL,
    "mv": MATMUL,
    "outer": "op.einsum([lhs, rhs], 'i,j->ij')",
    "tensordot": "op.einsum([lhs, rhs], 'ijk,jkl->il')",
}


def _conv(
    dims: int, *, stride: str = "1", padding: str = "padding", dilation: str = "1", weight: str = "weight"
) -> str:
    """A convolution; one in groups has a weight with the groups in a dim of their own."""
    kind = "convolution" if weight == "weight" else "group_convolution"
    each = [f"[{padding}] * {dims}"] * 2
    return f"op.{kind}(data, {weight}, [{stride}] * {dims}, {', '.join(each)}, [{dilation}] * {dims})"


def _transposed(dims: int, weight: str = "weight", output_padding: str = "0") -> str:
    """A transposed convolution: the gradient of one by its data."""
    kind = "convolution_backprop_data" if weight == "weight" else "group_convolution_backprop_data"
    given = {"pads_begin": "padding", "pads_end": "padding", "dilations": "1", "output_padding": output_padding}
    each = ", ".join(f"{name}=[{value}] * {dims}" for name, value in given.items())
    return f"op.{kind}(data, {weight}, [stride] * {dims}, {each})"


GROUPED = "op.reshape(weight, [groups, weight.shape[0] // groups, *weight.shape[1:]], False)"
BIAS = "op.reshape(bias, [1, -1, 1, 1], False)"
CONVOLUTION = {
    "conv1d": _conv(1, stride="stride"),
    "conv1d_1x1": _conv(1, stride="stride"),
    "conv1d_depthwise": _conv(1, weight=GROUPED),
    "conv1d_dilated": _conv(1, dilation="dilation"),
    "conv1d_stem": _conv(1, stride="stride"),
    "conv2d": _conv(2, stride="stride"),
    "conv2d_1x1": _conv(2, stride="stride"),
    "conv2d_1x1_strided": _conv(2, stride="stride"),
    "conv2d_1x7": "op.convolution(data, weight, [stride] * 2, list(padding), list(padding), [1, 1])",
    "conv2d_5x5": _conv(2, stride="stride"),
    "conv2d_bias": f"op.add({_conv(2, stride='stride')}, {BIAS})",
    "conv2d_deep": _conv(2, stride="stride"),
    "conv2d_depthwise": _conv(2, weight=GROUPED),
    "conv2d_depthwise_7x7": _conv(2, weight=GROUPED),
    "conv2d_dilated": _conv(2, dilation="dilation"),
    "conv2d_grouped": _conv(2, weight=GROUPED),
    "conv2d_patches": f"op.add({_conv(2, stride='stride')}, {BIAS})",
    "conv2d_stem": _conv(2, stride="stride"),
    "conv2d_strided": _conv(2, stride="stride"),
    "conv3d": _conv(3, stride="stride"),
    "conv3d_1x1": _conv(3, stride="stride"),
    "conv3d_depthwise": _conv(3, weight=GROUPED),
    "conv3d_strided": _conv(3, stride="stride"),
    "conv_transpose1d": _transposed(1),
    "conv_transpose2d": _transposed(2),
    "conv_transpose2d_bias": f"op.add({_transposed(2)}, {BIAS})",
    "conv_transpose2d_depthwise": _transposed(2, weight=GROUPED),
    "conv_transpose2d_output_padding": _transposed(2, output_padding="output_padding"),
    "conv_transpose3d": _transposed(3),
}


def _max_pool(dims: int, padding: str = "0", dilation: str = "1") -> str:
    each = ", ".join(f"[{value}] * {dims}" for value in ("stride", dilation, padding, padding, "kernel_size"))
    return f"op.max_pool(data, {each}).output(0)"


def _avg_pool(dims: int, padding: str = "0", exclude_pad: bool = False) -> str:
    each = ", ".join(f"[{value}] * {dims}" for value in ("stride", padding, padding, "kernel_size"))
    return f"op.avg_pool(data, {each}, {exclude_pad}, dilations=[1] * {dims})"


POOLING = {
    **{f"max_pool{dims}d": _max_pool(dims) for dims in (1, 2, 3)},
    **{f"avg_pool{dims}d": _avg_pool(dims) for dims in (1, 2, 3)},
    **{f"adaptive_avg_pool{dims}d": f"op.adaptive_avg_pool(data, [output_size] * {dims})" for dims in (1, 2, 3)},
    **{
        f"adaptive_max_pool{dims}d": f"op.adaptive_max_pool(data, [output_size] * {dims}, 'i32').output(0)"
        for dims in (1, 2, 3)
    },
    "avg_pool2d_3x3": _avg_pool(2, padding="padding"),
    "avg_pool2d_without_padding": _avg_pool(2, padding="padding", exclude_pad=True),
    "global_avg_pool2d": "op.reduce_mean(data, [2, 3], True)",
    "global_max_pool2d": "op.reduce_max(data, [2, 3], True)",
    "max_pool2d_dilated": _max_pool(2, padding="padding", dilation="dilation"),
    "max_pool2d_stem": _max_pool(2, padding="padding"),
}

BATCH_NORM = "op.batch_norm_inference(data, weight, bias, running_mean, running_var, eps)"


def _mvn(axes: str) -> str:
    return f"op.mvn(data, {axes}, True, eps, 'inside_sqrt')"


def _per_channel(dims: int) -> tuple[str, str]:
    """Weight and bias in the shape that broadcasts over data (n, channels, *space)."""
    shape = [1, -1, *[1] * dims]
    return f"op.reshape(weight, {shape}, False)", f"op.reshape(bias, {shape}, False)"


def _affine(normalised: str, weight: str = "weight", bias: str = "bias") -> str:
    return f"op.add(op.multiply({normalised}, {weight}), {bias})"


NORMALISATION = {
    "batch_norm_1d_eval": BATCH_NORM,
    "batch_norm_3d_eval": BATCH_NORM,
    "batch_norm_eval": BATCH_NORM,
    "group_norm": "op.group_normalization(data, weight, bias, num_groups, eps)",
    "instance_norm": _affine(_mvn("[2, 3]"), *_per_channel(2)),
    "instance_norm_1d": _affine(_mvn("[2]"), *_per_channel(1)),
    "layer_norm": _affine(_mvn("[-1]")),
    "layer_norm_images": _affine(_mvn("[1, 2, 3]")),
    "layer_norm_no_affine": _mvn("[-1]"),
    "local_response_norm": "op.lrn(data, [1], alpha, beta, k, size)",
    "rms_norm": (
        "op.multiply(weight,"
        " op.divide(data, op.sqrt(op.add(op.reduce_mean(op.power(data, real(2.0)), [-1], True), real(eps)))))"
    ),
    "weight_norm": "op.multiply(data, op.divide(magnitude, op.reduce_l2(data, [1], True)))",
}

LINEAR_ALGEBRA = {
    "linalg_inv": "op.inverse(data, False)",
    "linalg_inv_batched": "op.inverse(data, False)",
    "linalg_matrix_norm": "op.reduce_l2(data, [0, 1], False)",
    "linalg_matrix_norm_one": "op.reduce_max(op.reduce_l1(data, [0], False), [0], False)",
    "linalg_norm": "op.reduce_l2(data, [0, 1], False)",
    "linalg_vector_norm": "op.reduce_l2(data, [dim], False)",
}

LAYERS: Mapping[str, str] = {**GEMM, **LINEAR_ALGEBRA, **CONVOLUTION, **POOLING, **NORMALISATION}
