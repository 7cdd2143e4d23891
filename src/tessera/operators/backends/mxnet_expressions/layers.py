"""Layers: convolutions, poolings, normalisations, recurrent layers, embeddings."""

from __future__ import annotations


def _same(names: tuple[str, ...], dims: int) -> str:
    """Attributes that are one number for all dims, as the tuples that MXNet wants; it calls padding `pad`."""
    words = {"padding": "pad", "dilation": "dilate", "output_padding": "adj", "kernel_size": "kernel"}
    return "".join(f", {words.get(name, name)}=({name},) * {dims}" for name in names)


def _convolution(
    dims: int, *names: str, padding: str = "", bias: bool = False, groups: bool = False, transposed: bool = False
) -> str:
    function, filters = ("Deconvolution", "[1]") if transposed else ("Convolution", "[0]")
    many = f"shapes['weight']{filters}" + (" * groups" if transposed and groups else "")
    given = _same(names, dims) + (f", pad={padding}" if padding else "") + (", num_group=groups" if groups else "")
    inputs = "data, weight, bias" if bias else "data, weight, no_bias=True"
    # the default of a transposed one is to have no bias, whatever is passed
    said = ", no_bias=False" if bias and transposed else ""
    return f"nd.{function}({inputs}{said}, kernel=shapes['weight'][2:], num_filter={many}{given})"


def _pooling(kind: str, dims: int, *names: str, more: str = "") -> str:
    return f"nd.Pooling(data, pool_type='{kind}'{_same(('kernel_size', *names), dims)}{more})"


def _batch_norm(data: str = "data") -> str:
    statistics = "running_mean, running_var, fix_gamma=False, use_global_stats=not training, eps=eps"
    return f"nd.BatchNorm({data}, weight, bias, {statistics})"


def _recurrent(cell: str, *, layers: int = 1, directions: int = 1) -> str:
    """A layer over time; its weights and then its biases go into one vector, as MXNet's own layers do at each call."""
    runs = [f"_{layer}{'_reverse' * way}" for layer in range(layers) for way in range(directions)]
    weights = [f"nd.reshape(weight_{part}{run}, shape=(-1,))" for run in runs for part in ("ih", "hh")]
    biases = [f"bias_{part}{run}" for run in runs for part in ("ih", "hh")]
    states = "hidden, cell" if cell == "lstm" else "hidden"
    return (
        f"nd.RNN(data, nd.concat({', '.join(weights + biases)}, dim=0), {states}, mode='{cell}', num_layers={layers}, "
        f"bidirectional={directions > 1}, state_size=shapes['hidden'][-1], state_outputs=True)"
    )


_DIMS = (1, 2, 3)
_EMBEDDING = "nd.Embedding(index, weight, input_dim=shapes['weight'][0], output_dim=shapes['weight'][1])"

EXPRESSIONS = {
    # convolutions
    "conv1d": _convolution(1, "stride", "padding"),
    "conv1d_1x1": _convolution(1, "stride", "padding"),
    "conv1d_dilated": _convolution(1, "padding", "dilation"),
    "conv1d_depthwise": _convolution(1, "padding", groups=True),
    "conv1d_stem": _convolution(1, "stride", "padding"),
    **{
        name: _convolution(2, "stride", "padding")
        for name in (
            *("conv2d", "conv2d_5x5", "conv2d_strided", "conv2d_deep"),
            *("conv2d_1x1", "conv2d_1x1_strided", "conv2d_stem"),
        )
    },
    "conv2d_bias": _convolution(2, "stride", "padding", bias=True),
    "conv2d_patches": _convolution(2, "stride", "padding", bias=True),
    "conv2d_dilated": _convolution(2, "padding", "dilation"),
    "conv2d_grouped": _convolution(2, "padding", groups=True),
    "conv2d_depthwise": _convolution(2, "padding", groups=True),
    "conv2d_depthwise_7x7": _convolution(2, "padding", groups=True),
    "conv2d_1x7": _convolution(2, "stride", padding="padding"),
    **{name: _convolution(3, "stride", "padding") for name in ("conv3d", "conv3d_1x1", "conv3d_strided")},
    "conv3d_depthwise": _convolution(3, "padding", groups=True),
    **{f"conv_transpose{dims}d": _convolution(dims, "stride", "padding", transposed=True) for dims in _DIMS},
    "conv_transpose2d_bias": _convolution(2, "stride", "padding", bias=True, transposed=True),
    "conv_transpose2d_output_padding": _convolution(2, "stride", "padding", "output_padding", transposed=True),
    "conv_transpose2d_depthwise": _convolution(2, "stride", "padding", groups=True, transposed=True),
    # poolings
    **{f"max_pool{dims}d": _pooling("max", dims, "stride") for dims in _DIMS},
    **{f"avg_pool{dims}d": _pooling("avg", dims, "stride") for dims in _DIMS},
    **{f"lp_pool{dims}d": _pooling("lp", dims, "stride", more=", p_value=int(norm_type)") for dims in _DIMS},
    "max_pool2d_stem": _pooling("max", 2, "stride", "padding"),
    "avg_pool2d_3x3": _pooling("avg", 2, "stride", "padding"),
    "avg_pool2d_without_padding": _pooling("avg", 2, "stride", "padding", more=", count_include_pad=count_include_pad"),
    "adaptive_avg_pool2d": "nd.contrib.AdaptiveAvgPooling2D(data, output_size=output_size)",
    "global_avg_pool2d": "nd.Pooling(data, pool_type='avg', global_pool=True)",
    "global_max_pool2d": "nd.Pooling(data, pool_type='max', global_pool=True)",
    # normalisations
    **{
        name: _batch_norm()
        for name in (
            *("batch_norm", "batch_norm_1d", "batch_norm_3d", "batch_norm_rows"),
            *("batch_norm_eval", "batch_norm_1d_eval", "batch_norm_3d_eval"),
        )
    },
    "layer_norm": "nd.LayerNorm(data, weight, bias, axis=-1, eps=eps)",
    "instance_norm": "nd.InstanceNorm(data, weight, bias, eps=eps)",
    "instance_norm_1d": "nd.InstanceNorm(data, weight, bias, eps=eps)",
    "local_response_norm": "nd.LRN(data, nsize=size, alpha=alpha, beta=beta, knorm=k)",
    # recurrent
    **{cell: _recurrent(cell) for cell in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
    "lstm_two_layers": _recurrent("lstm", layers=2),
    "lstm_bidirectional": _recurrent("lstm", directions=2),
    "lstm_bidirectional_two_layers": _recurrent("lstm", layers=2, directions=2),
    "gru_two_layers": _recurrent("gru", layers=2),
    "gru_bidirectional": _recurrent("gru", directions=2),
    "rnn_tanh_bidirectional": _recurrent("rnn_tanh", directions=2),
    # images, embeddings
    "interpolate_nearest": "nd.UpSampling(data, scale=size[0] // shapes['data'][2], sample_type='nearest')",
    "interpolate_bilinear": "nd.contrib.BilinearResize2D(data, height=size[0], width=size[1], align_corners=False)",
    "interpolate_bilinear_corners": "nd.contrib.BilinearResize2D(data, height=size[0], width=size[1])",
    "one_hot": "nd.one_hot(index, depth=num_classes, dtype='int64')",
    "embedding": _EMBEDDING,
    "embedding_frequent": _EMBEDDING,
}
