"""Normalisation over the batch, over a layer, over groups of channels."""

from __future__ import annotations

from tessera.operators.catalogue.convolution import channels_last_values
from tessera.operators.catalogue.families import WIDE_DTYPES, Sizes, define_family
from tessera.operators.draws import Draw, normal, uniform
from tessera.operators.operator import Input, Operator, Shape, make_sizes

IMAGE_SCALES = ((1, 16, 16), (4, 64, 56), (32, 64, 112))
SERIES_SCALES = ((4, 16, 64), (16, 256, 256), (64, 256, 1024))
VOLUME_SCALES = ((1, 8, 8), (2, 32, 24), (8, 64, 32))
ROW_SCALES = ((16, 256), (1024, 1024), (16384, 1024))
POSITIVE_VALUES = uniform(0.5, 1.5)


# about 8 FLOPs per element (mean, variance, scaling) forward, 16 backward
_define_normalisation = define_family("normalisation", attributes={"eps": 1e-5}, flops=8)


def _make_affine(data: Shape, weight: Shape, draw: Draw = normal) -> dict[str, Input]:
    return {"data": Input(data, draw), "weight": Input(weight, POSITIVE_VALUES), "bias": Input(weight)}


def _make_channels(dims: int, scales: tuple[tuple[int, int, int], ...], draw: Draw = normal) -> Sizes:
    return make_sizes(lambda n, c, side: _make_affine((n, c, *(side,) * dims), (c,), draw), *scales)


def _add_statistics(sizes: Sizes) -> Sizes:
    """Add the inputs `running_mean` and `running_var`, which receive no gradient, to every size."""
    return {
        size: {
            **inputs,
            "running_mean": Input(inputs["weight"].shape, grad=False),
            "running_var": Input(inputs["weight"].shape, POSITIVE_VALUES, grad=False),
        }
        for size, inputs in sizes.items()
    }


def _define_batch_norm(name: str, sizes: Sizes, training: bool) -> Operator:
    return _define_normalisation(
        name,
        "F.batch_norm(data, running_mean, running_var, weight, bias, training=training, eps=eps)",
        "ref.batch_norm(data, running_mean, running_var, weight, bias, training=training, eps=eps)",
        _add_statistics(sizes),
        attributes={"training": training, "eps": 1e-5},
        # with running statistics: one multiplication and one addition per element
        flops=8.0 if training else 2.0,
    )


ROW_INPUTS = make_sizes(lambda n, features: _make_affine((n, features), (features,)), *ROW_SCALES)

OPERATORS = (
    _define_batch_norm("batch_norm", _make_channels(2, IMAGE_SCALES), training=True),
    _define_batch_norm("batch_norm_eval", _make_channels(2, IMAGE_SCALES), training=False),
    _define_batch_norm(
        "batch_norm_channels_last", _make_channels(2, IMAGE_SCALES, channels_last_values), training=True
    ),
    _define_batch_norm("batch_norm_1d", _make_channels(1, SERIES_SCALES), training=True),
    _define_batch_norm("batch_norm_1d_eval", _make_channels(1, SERIES_SCALES), training=False),
    _define_batch_norm("batch_norm_3d", _make_channels(3, VOLUME_SCALES), training=True),
    _define_batch_norm("batch_norm_3d_eval", _make_channels(3, VOLUME_SCALES), training=False),
    _define_batch_norm("batch_norm_rows", ROW_INPUTS, training=True),
    _define_normalisation(
        "layer_norm",
        "F.layer_norm(data, data.shape[-1:], weight, bias, eps)",
        "ref.layer_norm(data, weight, bias, dims=1, eps=eps)",
        ROW_INPUTS,
    ),
    _define_normalisation(
        "layer_norm_no_affine",
        "F.layer_norm(data, data.shape[-1:], eps=eps)",
        "ref.layer_norm(data, dims=1, eps=eps)",
        make_sizes(lambda n, features: {"data": Input((n, features))}, *ROW_SCALES),
    ),
    _define_normalisation(
        "layer_norm_images",
        "F.layer_norm(data, data.shape[1:], weight, bias, eps)",
        "ref.layer_norm(data, weight, bias, dims=3, eps=eps)",
        make_sizes(lambda n, c, s: _make_affine((n, c, s, s), (c, s, s)), *IMAGE_SCALES),
    ),
    _define_normalisation(
        "native_layer_norm",
        "torch.native_layer_norm(data, data.shape[-1:], weight, bias, eps)",
        "(ref.layer_norm(data, weight, bias, dims=1, eps=eps), *ref.compute_mean_and_rstd(data, (-1,), eps))",
        ROW_INPUTS,
    ),
    _define_normalisation(
        "rms_norm",
        "F.rms_norm(data, data.shape[-1:], weight, eps)",
        "ref.rms_norm(data, weight, eps=eps)",
        make_sizes(
            lambda n, features: {"data": Input((n, features)), "weight": Input((features,), POSITIVE_VALUES)},
            *ROW_SCALES,
        ),
        flops=4.0,
    ),
    *(
        _define_normalisation(
            name,
            "F.group_norm(data, num_groups, weight, bias, eps)",
            "ref.group_norm(data, num_groups, weight, bias, eps=eps)",
            _make_channels(2, IMAGE_SCALES, draw),
            attributes={"num_groups": 8, "eps": 1e-5},
        )
        for name, draw in (("group_norm", normal), ("group_norm_channels_last", channels_last_values))
    ),
    *(
        _define_normalisation(
            name,
            "F.instance_norm(data, weight=weight, bias=bias, eps=eps)",
            "ref.group_norm(data, data.shape[1], weight, bias, eps=eps)",
            _make_channels(dims, scales),
        )
        for name, dims, scales in (("instance_norm", 2, IMAGE_SCALES), ("instance_norm_1d", 1, SERIES_SCALES))
    ),
    _define_normalisation(
        "local_response_norm",
        "F.local_response_norm(data, size, alpha=alpha, beta=beta, k=k)",
        "ref.local_response_norm(data, size, alpha=alpha, beta=beta, k=k)",
        make_sizes(lambda n, c, s: {"data": Input((n, c, s, s))}, *IMAGE_SCALES),
        attributes={"size": 5, "alpha": 1e-2, "beta": 0.75, "k": 1.0},
        flops=10.0,
        **WIDE_DTYPES,
    ),
    _define_normalisation(
        "weight_norm",
        "torch._weight_norm(data, magnitude, 0)",
        "ref.weight_norm",
        make_sizes(
            lambda n, k: {"data": Input((n, k)), "magnitude": Input((n, 1), POSITIVE_VALUES)},
            (64, 64),
            (1024, 1024),
            (4096, 4096),
        ),
        attributes={},
        flops=4.0,
    ),
)
