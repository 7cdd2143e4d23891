"""MXNet expressions of layers, matrix products, linear algebra, losses and fused operators (as separate steps)."""

from __future__ import annotations

PRODUCT_EXPRESSIONS = {
    **dict.fromkeys(("matmul", "mm", "mv"), "nd.dot(lhs, rhs)"),
    "matmul_transposed": "nd.dot(lhs, rhs, transpose_b=True)",
    "bmm": "nd.batch_dot(lhs, rhs)",
    "baddbmm": "nd.linalg.gemm(lhs, rhs, bias)",
    "inplace_addmm": "nd.linalg.gemm(lhs, rhs, bias, beta=0.5, out=bias)",
    "linear": "nd.FullyConnected(data, weight, bias, num_hidden=shapes['weight'][0])",
    "linear_no_bias": "nd.FullyConnected(data, weight, no_bias=True, num_hidden=shapes['weight'][0])",
    "linear_sequence": "nd.FullyConnected(data, weight, bias, num_hidden=shapes['weight'][0], flatten=False)",
    "einsum_matmul": "mnp.einsum(equation, lhs, rhs)",
    "einsum_sum": "mnp.einsum(equation, data)",
    # linear algebra
    "linalg_diagonal": "nd.linalg.extractdiag(data)",
    "linalg_det": "nd.linalg.det(data)",
    "linalg_slogdet": "nd.linalg.slogdet(data)",
    "linalg_cholesky": "nd.linalg.potrf(data)",
    "linalg_svd": "mnp.linalg.svd(data)",
    "linalg_inv": "nd.linalg.inverse(data)",
    "cholesky_inverse": "nd.linalg.potri(data)",
    "linalg_solve_triangular": "nd.linalg.trsm(data, rhs, lower=False)",
    "triangular_solve": "nd.linalg.trsm(data, rhs)",
}


def _write_tuples(names: tuple[str, ...], dims: int) -> str:
    """Return the source of keyword arguments that repeat an attribute for all dims, under MXNet's names (`pad=...`)."""
    words = {"padding": "pad", "dilation": "dilate", "output_padding": "adj", "kernel_size": "kernel"}
    return "".join(f", {words.get(name, name)}=({name},) * {dims}" for name in names)


def _write_convolution(
    dims: int, *names: str, padding: str = "", bias: bool = False, groups: bool = False, transposed: bool = False
) -> str:
    function, filters = ("Deconvolution", "[1]") if transposed else ("Convolution", "[0]")
    count = f"shapes['weight']{filters}" + (" * groups" if transposed and groups else "")
    attributes = (
        _write_tuples(names, dims) + (f", pad={padding}" if padding else "") + (", num_group=groups" if groups else "")
    )
    inputs = "data, weight, bias" if bias else "data, weight, no_bias=True"
    # Deconvolution ignores the bias by default
    use_bias = ", no_bias=False" if bias and transposed else ""
    return f"nd.{function}({inputs}{use_bias}, kernel=shapes['weight'][2:], num_filter={count}{attributes})"


def _write_pooling(kind: str, dims: int, *names: str, extra: str = "") -> str:
    return f"nd.Pooling(data, pool_type='{kind}'{_write_tuples(('kernel_size', *names), dims)}{extra})"


def _write_recurrent(cell: str, *, layers: int = 1, directions: int = 1) -> str:
    """Return the source of a recurrent layer.

    Each call concatenates weights and biases into one vector, as MXNet's own layers do.
    """
    runs = [f"_{layer}{'_reverse' * direction}" for layer in range(layers) for direction in range(directions)]
    weights = [f"nd.reshape(weight_{part}{run}, shape=(-1,))" for run in runs for part in ("ih", "hh")]
    biases = [f"bias_{part}{run}" for run in runs for part in ("ih", "hh")]
    states = "hidden, cell" if cell == "lstm" else "hidden"
    return (
        f"nd.RNN(data, nd.concat({', '.join(weights + biases)}, dim=0), {states}, mode='{cell}', num_layers={layers}, "
        f"bidirectional={directions > 1}, state_size=shapes['hidden'][-1], state_outputs=True)"
    )


_SPATIAL_DIM_COUNTS = (1, 2, 3)
_EMBEDDING_CALL = "nd.Embedding(index, weight, input_dim=shapes['weight'][0], output_dim=shapes['weight'][1])"

LAYER_EXPRESSIONS = {
    # convolutions
    "conv1d": _write_convolution(1, "stride", "padding"),
    "conv1d_dilated": _write_convolution(1, "padding", "dilation"),
    "conv1d_depthwise": _write_convolution(1, "padding", groups=True),
    "conv2d": _write_convolution(2, "stride", "padding"),
    "conv2d_bias": _write_convolution(2, "stride", "padding", bias=True),
    "conv2d_dilated": _write_convolution(2, "padding", "dilation"),
    "conv2d_grouped": _write_convolution(2, "padding", groups=True),
    "conv2d_1x7": _write_convolution(2, "stride", padding="padding"),
    "conv3d": _write_convolution(3, "stride", "padding"),
    "conv3d_depthwise": _write_convolution(3, "padding", groups=True),
    **{
        f"conv_transpose{dims}d": _write_convolution(dims, "stride", "padding", transposed=True)
        for dims in _SPATIAL_DIM_COUNTS
    },
    "conv_transpose2d_bias": _write_convolution(2, "stride", "padding", bias=True, transposed=True),
    "conv_transpose2d_output_padding": _write_convolution(2, "stride", "padding", "output_padding", transposed=True),
    "conv_transpose2d_depthwise": _write_convolution(2, "stride", "padding", groups=True, transposed=True),
    # poolings
    **{f"max_pool{dims}d": _write_pooling("max", dims, "stride") for dims in _SPATIAL_DIM_COUNTS},
    **{f"avg_pool{dims}d": _write_pooling("avg", dims, "stride") for dims in _SPATIAL_DIM_COUNTS},
    **{
        f"lp_pool{dims}d": _write_pooling("lp", dims, "stride", extra=", p_value=int(norm_type)")
        for dims in _SPATIAL_DIM_COUNTS
    },
    "max_pool2d_stem": _write_pooling("max", 2, "stride", "padding"),
    "avg_pool2d_3x3": _write_pooling("avg", 2, "stride", "padding"),
    "avg_pool2d_without_padding": _write_pooling(
        "avg", 2, "stride", "padding", extra=", count_include_pad=count_include_pad"
    ),
    "adaptive_avg_pool2d": "nd.contrib.AdaptiveAvgPooling2D(data, output_size=output_size)",
    "global_avg_pool2d": "nd.Pooling(data, pool_type='avg', global_pool=True)",
    "global_max_pool2d": "nd.Pooling(data, pool_type='max', global_pool=True)",
    # normalisations
    "batch_norm": (
        "nd.BatchNorm(data, weight, bias, running_mean, running_var, fix_gamma=False, use_global_stats=not training,"
        " eps=eps)"
    ),
    "layer_norm": "nd.LayerNorm(data, weight, bias, axis=-1, eps=eps)",
    "instance_norm": "nd.InstanceNorm(data, weight, bias, eps=eps)",
    "local_response_norm": "nd.LRN(data, nsize=size, alpha=alpha, beta=beta, knorm=k)",
    # recurrent
    **{cell: _write_recurrent(cell) for cell in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
    "lstm_two_layers": _write_recurrent("lstm", layers=2),
    "lstm_bidirectional": _write_recurrent("lstm", directions=2),
    "lstm_bidirectional_two_layers": _write_recurrent("lstm", layers=2, directions=2),
    "gru_two_layers": _write_recurrent("gru", layers=2),
    "gru_bidirectional": _write_recurrent("gru", directions=2),
    "rnn_tanh_bidirectional": _write_recurrent("rnn_tanh", directions=2),
    # images, embeddings
    "interpolate_nearest": "nd.UpSampling(data, scale=size[0] // shapes['data'][2], sample_type='nearest')",
    "interpolate_bilinear": "nd.contrib.BilinearResize2D(data, height=size[0], width=size[1], align_corners=False)",
    "interpolate_bilinear_corners": "nd.contrib.BilinearResize2D(data, height=size[0], width=size[1])",
    "one_hot": "nd.one_hot(index, depth=num_classes, dtype='int64')",
    "embedding": _EMBEDDING_CALL,
}

_TARGET_DIFFERENCE = "mnp.subtract(data, target)"
_CONVOLUTION_CALL = "nd.Convolution(data, weight, bias, kernel=(3, 3), pad=(1, 1), num_filter=shapes['weight'][0])"
_CONVOLUTION_AND_BATCH_NORM = (
    f"nd.BatchNorm({_CONVOLUTION_CALL}, scale, shift, running_mean, running_var, "
    "fix_gamma=False, use_global_stats=True, eps=1e-5)"
)
_LINEAR_TEMPLATE = "nd.FullyConnected({}, weight, bias, num_hidden=shapes['weight'][0])"
_ATTENTION_SCORES = "nd.batch_dot(query, key, transpose_b=True) * shapes['query'][-1] ** -0.5"

COMPOSED_EXPRESSIONS = {
    # losses
    "mse_loss": f"mnp.mean(mnp.square({_TARGET_DIFFERENCE}))",
    "l1_loss": f"mnp.mean(mnp.abs({_TARGET_DIFFERENCE}))",
    "smooth_l1_loss": f"mnp.mean(npx.smooth_l1({_TARGET_DIFFERENCE}, scalar=beta**-0.5))",
    "cross_entropy": "-mnp.mean(npx.pick(npx.log_softmax(data), target))",
    "cross_entropy_2d": "-mnp.mean(npx.pick(npx.log_softmax(data, axis=1), target, axis=1))",
    "nll_loss": "-mnp.mean(npx.pick(data, target))",
    "nll_loss_2d": "-mnp.mean(npx.pick(data, target, axis=1))",
    # fused operators
    "conv2d_relu": f"nd.relu({_CONVOLUTION_CALL})",
    "conv2d_batch_norm": _CONVOLUTION_AND_BATCH_NORM,
    "conv2d_batch_norm_relu": f"nd.relu({_CONVOLUTION_AND_BATCH_NORM})",
    "conv2d_add_relu": f"nd.relu(nd.add({_CONVOLUTION_CALL}, residual))",
    "linear_gelu": f"nd.LeakyReLU({_LINEAR_TEMPLATE.format('data')}, act_type='gelu')",
    "linear_relu": f"nd.relu({_LINEAR_TEMPLATE.format('data')})",
    "matmul_bias_relu": "nd.relu(nd.add(nd.dot(data, weight), bias))",
    "layer_norm_linear": _LINEAR_TEMPLATE.format("nd.LayerNorm(data, scale, shift)"),
    "softmax_matmul": "nd.dot(nd.softmax(data), weight)",
    "matmul_softmax_matmul": f"nd.batch_dot(nd.softmax({_ATTENTION_SCORES}), value)",
    "multiply_add": "lhs * rhs + other",
    "multiply_add_tanh": "nd.tanh(lhs * rhs + other)",
    "add_relu": "nd.relu(lhs + rhs)",
    "scale_softmax": "nd.softmax(data * 0.125)",
    # attention
    "attention_unfused": (
        "mnp.matmul(npx.softmax(mnp.matmul(query, mnp.swapaxes(key, -1, -2)) * scale, axis=-1), value)"
    ),
}

EXPRESSIONS = PRODUCT_EXPRESSIONS | LAYER_EXPRESSIONS | COMPOSED_EXPRESSIONS
