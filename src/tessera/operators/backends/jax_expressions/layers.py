"""JAX expressions of layers: products, convolutions, pooling, normalisation, attention, recurrent and fused layers.

Data has the shape (n, channels, *space). XLA chooses the memory layout, so channels-last inputs are not supported.
JAX has no adaptive pooling.
"""

from __future__ import annotations

GEMM_EXPRESSIONS = {
    "int_mm": "lax.dot(lhs, rhs, preferred_element_type=jnp.int32)",
    "linalg_vecdot": "jnp.linalg.vecdot(lhs, rhs)",
    "addbmm": "bias + jnp.einsum('bij,bjk->ik', lhs, rhs)",
    "bilinear": "jnp.einsum('ni,oij,nj->no', lhs, weight, rhs) + bias",
}

SPATIAL_DIM_LETTERS = "WHD"


def _write_conv(dims: int, *, stride: str = "1", padding: str = "0", dilation: str = "1", groups: str = "1") -> str:
    """Return the source of a convolution; each option is an attribute's name or a number, and applies to all dims."""
    return (
        f"lax.conv_general_dilated(data, weight, ({stride},) * {dims}, [({padding}, {padding})] * {dims},"
        f" rhs_dilation=({dilation},) * {dims}, feature_group_count={groups})"
    )


def _write_conv_transpose(dims: int, *, output_padding: str = "0") -> str:
    """Return the source of a transposed convolution; attribute `padding` is the padding of the forward convolution."""
    spaces = SPATIAL_DIM_LETTERS[:dims]
    around = f"[(k - 1 - padding, k - 1 - padding + {output_padding}) for k in weight.shape[2:]]"
    return (
        f"lax.conv_transpose(data, weight, (stride,) * {dims}, {around},"
        f" dimension_numbers=('NC{spaces}', 'OI{spaces}', 'NC{spaces}'), transpose_kernel=True)"
    )


STRIDE_AND_PADDING = {"stride": "stride", "padding": "padding"}
PADDING_AND_DILATION = {"padding": "padding", "dilation": "dilation"}
PADDING_AND_GROUPS = {"padding": "padding", "groups": "groups"}
ADD_BIAS = " + bias[:, None, None]"

CONVOLUTION_EXPRESSIONS = {
    "conv1d": _write_conv(1, **STRIDE_AND_PADDING),
    "conv1d_dilated": _write_conv(1, **PADDING_AND_DILATION),
    "conv1d_depthwise": _write_conv(1, **PADDING_AND_GROUPS),
    "conv2d": _write_conv(2, **STRIDE_AND_PADDING),
    "conv2d_bias": _write_conv(2, **STRIDE_AND_PADDING) + ADD_BIAS,
    "conv2d_dilated": _write_conv(2, **PADDING_AND_DILATION),
    "conv2d_grouped": _write_conv(2, **PADDING_AND_GROUPS),
    "conv2d_1x7": "lax.conv_general_dilated(data, weight, (stride,) * 2, [(p, p) for p in padding])",
    "conv3d": _write_conv(3, **STRIDE_AND_PADDING),
    "conv3d_depthwise": _write_conv(3, **PADDING_AND_GROUPS),
    "conv_transpose1d": _write_conv_transpose(1),
    "conv_transpose2d": _write_conv_transpose(2),
    "conv_transpose2d_bias": _write_conv_transpose(2) + ADD_BIAS,
    "conv_transpose2d_output_padding": _write_conv_transpose(2, output_padding="output_padding"),
    # lax.conv_transpose has no groups
    "conv_transpose2d_depthwise": "lax.conv_general_dilated(data, jnp.flip(weight, (2, 3)), (1, 1),"
    " [(k - 1 - padding,) * 2 for k in weight.shape[2:]], lhs_dilation=(stride,) * 2, feature_group_count=groups)",
    "conv_transpose3d": _write_conv_transpose(3),
    "conv_tbc": "lax.conv_general_dilated(data, weight, (1,), [(pad, pad)],"
    " dimension_numbers=('WNC', 'WIO', 'WNC')) + bias",
}


def _write_pool(reduction: str, dims: int, *, of: str = "data", padding: str = "0", dilation: str = "1") -> str:
    """Return the source of a reduction (`max` or `add`) of the expression `of` over sliding windows."""
    start = "-jnp.inf" if reduction == "max" else "0.0"
    window = f"(1, 1) + (kernel_size,) * {dims}, (1, 1) + (stride,) * {dims}"
    around = f"[(0, 0)] * 2 + [({padding}, {padding})] * {dims}"
    gaps = f", window_dilation=(1, 1) + ({dilation},) * {dims}" if dilation != "1" else ""
    return f"lax.reduce_window({of}, {start}, lax.{reduction}, {window}, {around}{gaps})"


POOLING_EXPRESSIONS = {
    **{f"max_pool{dims}d": _write_pool("max", dims) for dims in (1, 2, 3)},
    **{f"avg_pool{dims}d": f"{_write_pool('add', dims)} / kernel_size**{dims}" for dims in (1, 2, 3)},
    **{
        f"lp_pool{dims}d": f"{_write_pool('add', dims, of='jnp.abs(data) ** norm_type')} ** (1 / norm_type)"
        for dims in (1, 2, 3)
    },
    "max_pool2d_stem": _write_pool("max", 2, padding="padding"),
    "max_pool2d_dilated": _write_pool("max", 2, padding="padding", dilation="dilation"),
    "avg_pool2d_3x3": f"{_write_pool('add', 2, padding='padding')} / kernel_size**2",
    "avg_pool2d_without_padding": f"{_write_pool('add', 2, padding='padding')}"
    f" / {_write_pool('add', 2, of='jnp.ones_like(data)', padding='padding')}",
    "global_avg_pool2d": "jnp.mean(data, (2, 3), keepdims=True)",
    "global_max_pool2d": "jnp.max(data, (2, 3), keepdims=True)",
}


def _write_standardise(axes: str, of: str = "data") -> str:
    return f"jax.nn.standardize({of}, {axes}, epsilon=eps)"


def _write_affine(dims: int) -> str:
    """Return the source of a scale and shift per channel, for data with `dims` spatial dims."""
    space = "[:" + ", None" * dims + "]" if dims else ""
    return f" * weight{space} + bias{space}"


def _write_batch_norm(dims: int) -> str:
    return _write_standardise(str((0, *range(2, 2 + dims)))) + _write_affine(dims)


def _write_batch_norm_eval(dims: int) -> str:
    space = "[:" + ", None" * dims + "]"
    return f"(data - running_mean{space}) * lax.rsqrt(running_var{space} + eps)" + _write_affine(dims)


NORMALISATION_EXPRESSIONS = {
    "batch_norm": _write_batch_norm(2),
    "batch_norm_eval": _write_batch_norm_eval(2),
    "batch_norm_1d": _write_batch_norm(1),
    "batch_norm_1d_eval": _write_batch_norm_eval(1),
    "batch_norm_3d": _write_batch_norm(3),
    "batch_norm_3d_eval": _write_batch_norm_eval(3),
    "batch_norm_rows": _write_batch_norm(0),
    "layer_norm": _write_standardise("-1") + _write_affine(0),
    "layer_norm_no_affine": _write_standardise("-1"),
    "layer_norm_images": _write_standardise("(1, 2, 3)") + _write_affine(0),
    "native_layer_norm": "(lambda mean, scale: ((data - mean) * scale * weight + bias, mean, scale))"
    "(jnp.mean(data, -1, keepdims=True), lax.rsqrt(jnp.var(data, -1, keepdims=True) + eps))",
    "rms_norm": "data * lax.rsqrt(jnp.mean(jnp.square(data), -1, keepdims=True) + eps) * weight",
    "group_norm": _write_standardise("-1", "data.reshape(len(data), num_groups, -1)")
    + ".reshape(data.shape)"
    + _write_affine(2),
    "instance_norm": _write_standardise("(2, 3)") + _write_affine(2),
    "instance_norm_1d": _write_standardise("2") + _write_affine(1),
    "local_response_norm": "data / (k + alpha / size * lax.reduce_window(jnp.square(data), 0.0, lax.add,"
    " (1, size, 1, 1), (1, 1, 1, 1), ((0, 0), (size // 2, (size - 1) // 2), (0, 0), (0, 0)))) ** beta",
    "weight_norm": "data * (magnitude / jnp.linalg.norm(data, axis=1, keepdims=True))",
}


def _write_attention(options: str = "") -> str:
    """Return the source of JAX's attention; it swaps dims because JAX expects (n, length, heads, features)."""
    turned = ", ".join(f"jnp.swapaxes({name}, 1, 2)" for name in ("query", "key", "value"))
    return f"jnp.swapaxes(jax.nn.dot_product_attention({turned}{options}), 1, 2)"


ATTENTION_EXPRESSIONS = {
    "scaled_dot_product_attention": _write_attention(),
    "scaled_dot_product_attention_gqa": _write_attention(),
    "scaled_dot_product_attention_causal": _write_attention(", is_causal=True"),
    "scaled_dot_product_attention_mask": _write_attention(", mask=mask[None, None]"),
    "scaled_dot_product_attention_bias": _write_attention(", bias=mask[None, None]"),
    "attention_unfused": "jax.nn.softmax(query @ key.mT * scale, -1) @ value",
}

# gate pre-activations of one step, from data `x` and hidden state `h`; `{0}` is the suffix of the weight names
INPUT_PREACTIVATION = "x @ weight_ih{0}.T + bias_ih{0}"
HIDDEN_PREACTIVATION = "h @ weight_hh{0}.T + bias_hh{0}"

# functions of (*states, data) that return a tuple of the states after one step
CELL_FUNCTIONS = {
    "rnn_tanh": f"lambda h, x: (jnp.tanh({INPUT_PREACTIVATION} + {HIDDEN_PREACTIVATION}),)",
    "rnn_relu": f"lambda h, x: (jax.nn.relu({INPUT_PREACTIVATION} + {HIDDEN_PREACTIVATION}),)",
    "gru": "lambda h, x: (lambda reset, update, new, reset_h, update_h, new_h: (lambda kept:"
    " ((1 - kept) * jnp.tanh(new + jax.nn.sigmoid(reset + reset_h) * new_h) + kept * h,))"
    f"(jax.nn.sigmoid(update + update_h)))(*jnp.split({INPUT_PREACTIVATION}, 3, -1),"
    f" *jnp.split({HIDDEN_PREACTIVATION}, 3, -1))",
    "lstm": "lambda h, c, x: (lambda admit, keep, value, show: (lambda after:"
    " (jax.nn.sigmoid(show) * jnp.tanh(after), after))"
    "(jax.nn.sigmoid(keep) * c + jax.nn.sigmoid(admit) * jnp.tanh(value)))"
    f"(*jnp.split({INPUT_PREACTIVATION} + {HIDDEN_PREACTIVATION}, 4, -1))",
}
CELL_STATE_NAMES = {"rnn_tanh": ("hidden",), "rnn_relu": ("hidden",), "gru": ("hidden",), "lstm": ("hidden", "cell")}


def _write_step(cell: str) -> str:
    return f"({CELL_FUNCTIONS[cell].format('')})({', '.join(CELL_STATE_NAMES[cell])}, data)"


def _write_layer(cell: str, data: str = "data") -> str:
    """Return the source of a layer as a scan over time.

    Its results are the hidden states of all steps, then the last states with shape (1, n, features).
    """
    start = ", ".join(f"{state}[0]" for state in CELL_STATE_NAMES[cell])
    body = f"lambda states, x: (lambda after: (after, after[0]))(({CELL_FUNCTIONS[cell].format('_0')})(*states, x))"
    return f"(lambda last, shown: (shown, *(state[None] for state in last)))(*lax.scan({body}, ({start},), {data}))"


def _write_batch_first(cell: str) -> str:
    return f"(lambda shown, *last: (shown.swapaxes(0, 1), *last))(*{_write_layer(cell, 'data.swapaxes(0, 1)')})"


RECURRENT_EXPRESSIONS = {
    **{f"{cell}_cell": _write_step(cell) for cell in CELL_FUNCTIONS},
    **{cell: _write_layer(cell) for cell in CELL_FUNCTIONS},
    **{f"{cell}_batch_first": _write_batch_first(cell) for cell in ("gru", "lstm")},
}

CONV_WITH_BIAS = f"{_write_conv(2, padding='1')} + bias[:, None, None]"
BATCH_NORM_EVAL = (
    "(lambda y: (y - running_mean[:, None, None]) * lax.rsqrt(running_var[:, None, None] + 1e-5)"
    " * scale[:, None, None] + shift[:, None, None])"
)
LAYER_NORM_TEMPLATE = "jax.nn.standardize({}, axis=-1, epsilon=1e-5)"

FUSED_EXPRESSIONS = {
    "conv2d_relu": f"jax.nn.relu({CONV_WITH_BIAS})",
    "conv2d_batch_norm": f"{BATCH_NORM_EVAL}({CONV_WITH_BIAS})",
    "conv2d_batch_norm_relu": f"jax.nn.relu({BATCH_NORM_EVAL}({CONV_WITH_BIAS}))",
    "conv2d_add_relu": f"jax.nn.relu({CONV_WITH_BIAS} + residual)",
    "conv2d_silu": f"jax.nn.silu({CONV_WITH_BIAS})",
    "linear_gelu": "jax.nn.gelu(data @ weight.T + bias, approximate=False)",
    "linear_relu": "jax.nn.relu(data @ weight.T + bias)",
    "matmul_bias_relu": "jax.nn.relu(data @ weight + bias)",
    "layer_norm_linear": f"({LAYER_NORM_TEMPLATE.format('data')} * scale + shift) @ weight.T + bias",
    "softmax_matmul": "jax.nn.softmax(data, axis=-1) @ weight",
    "matmul_softmax_matmul": "jax.nn.softmax(query @ key.swapaxes(-2, -1) * query.shape[-1] ** -0.5, axis=-1) @ value",
    "add_relu": "jax.nn.relu(lhs + rhs)",
    "silu_multiply": "jax.nn.silu(lhs) * rhs",
    "add_layer_norm": LAYER_NORM_TEMPLATE.format("lhs + rhs"),
    "scale_softmax": "jax.nn.softmax(data * 0.125, axis=-1)",
}

EXPRESSIONS = (
    GEMM_EXPRESSIONS
    | CONVOLUTION_EXPRESSIONS
    | POOLING_EXPRESSIONS
    | NORMALISATION_EXPRESSIONS
    | ATTENTION_EXPRESSIONS
    | RECURRENT_EXPRESSIONS
    | FUSED_EXPRESSIONS
)
