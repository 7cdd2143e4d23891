"""Normalisation over the batch, over a layer, over groups of channels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tessera.operators.catalogue.convolution import channels_last
from tessera.operators.draws import Draw, normal, uniform
from tessera.operators.operator import Input, Operator, Shape, by_size
from tessera.operators.work import per_output

Sizes = Mapping[str, Mapping[str, Input]]

IMAGES = ((1, 16, 16), (4, 64, 56), (32, 64, 112))
SERIES = ((4, 16, 64), (16, 256, 256), (64, 256, 1024))
VOLUMES = ((1, 8, 8), (2, 32, 24), (8, 64, 32))
ROWS = ((16, 256), (1024, 1024), (16384, 1024))
POSITIVE = uniform(0.5, 1.5)


def _normalisation(name: str, torch: str, reference: str, sizes: Sizes, attributes: Any, **others: Any) -> Operator:
    """Mean, variance, scaling: about eight FLOPs a value, and twice that backward."""
    return Operator(
        name=name,
        category="normalisation",
        torch=torch,
        reference=reference,
        sizes=sizes,
        attributes=attributes,
        **({"flops": per_output(8.0)} | others),
    )


def _affine(data: Shape, weight: Shape, draw: Draw = normal) -> dict[str, Input]:
    return {
        "data": Input(shape=data, draw=draw),
        "weight": Input(shape=weight, draw=POSITIVE),
        "bias": Input(shape=weight),
    }


def _channels(dims: int, scales: tuple[tuple[int, int, int], ...], draw: Draw = normal) -> Sizes:
    return by_size(lambda n, c, side: _affine((n, c, *(side,) * dims), (c,), draw), *scales)


def _with_statistics(sizes: Sizes) -> Sizes:
    """The same with a running mean and variance, which no gradient flows to."""
    return {
        size: {
            **inputs,
            "running_mean": Input(shape=inputs["weight"].shape, grad=False),
            "running_var": Input(shape=inputs["weight"].shape, draw=POSITIVE, grad=False),
        }
        for size, inputs in sizes.items()
    }


def _batch_norm(name: str, sizes: Sizes, training: bool) -> Operator:
    return _normalisation(
        name,
        "F.batch_norm(data, running_mean, running_var, weight, bias, training=training, eps=eps)",
        "ref.batch_norm(data, running_mean, running_var, weight, bias, training=training, eps=eps)",
        _with_statistics(sizes),
        {"training": training, "eps": 1e-5},
        # with given statistics it is one product and one sum a value
        flops=per_output(8.0 if training else 2.0),
    )


ROW_SIZES = by_size(lambda n, features: _affine((n, features), (features,)), *ROWS)

OPERATORS = (
    _batch_norm("batch_norm", _channels(2, IMAGES), training=True),
    _batch_norm("batch_norm_eval", _channels(2, IMAGES), training=False),
    _batch_norm("batch_norm_channels_last", _channels(2, IMAGES, channels_last), training=True),
    _batch_norm("batch_norm_1d", _channels(1, SERIES), training=True),
    _batch_norm("batch_norm_1d_eval", _channels(1, SERIES), training=False),
    _batch_norm("batch_norm_3d", _channels(3, VOLUMES), training=True),
    _batch_norm("batch_norm_3d_eval", _channels(3, VOLUMES), training=False),
    _batch_norm("batch_norm_rows", ROW_SIZES, training=True),
    _normalisation(
        "layer_norm",
        "F.layer_norm(data, data.shape[-1:], weight, bias, eps)",
        "ref.layer_norm(data, weight, bias, dims=1, eps=eps)",
        ROW_SIZES,
        {"eps": 1e-5},
    ),
    _normalisation(
        "layer_norm_no_affine",
        "F.layer_norm(data, data.shape[-1:], eps=eps)",
        "ref.layer_norm(data, dims=1, eps=eps)",
        by_size(lambda n, features: {"data": Input(shape=(n, features))}, *ROWS),
        {"eps": 1e-5},
    ),
    _normalisation(
        "layer_norm_images",
        "F.layer_norm(data, data.shape[1:], weight, bias, eps)",
        "ref.layer_norm(data, weight, bias, dims=3, eps=eps)",
        by_size(lambda n, c, s: _affine((n, c, s, s), (c, s, s)), *IMAGES),
        {"eps": 1e-5},
    ),
    _normalisation(
        "native_layer_norm",
        "torch.native_layer_norm(data, data.shape[-1:], weight, bias, eps)",
        "(ref.layer_norm(data, weight, bias, dims=1, eps=eps), *ref.statistics(data, (-1,), eps))",
        ROW_SIZES,
        {"eps": 1e-5},
    ),
    _normalisation(
        "rms_norm",
        "F.rms_norm(data, data.shape[-1:], weight, eps)",
        "ref.rms_norm(data, weight, eps=eps)",
        by_size(
            lambda n, features: {
                "data": Input(shape=(n, features)),
                "weight": Input(shape=(features,), draw=POSITIVE),
            },
            *ROWS,
        ),
        {"eps": 1e-5},
        flops=per_output(4.0),
    ),
    _normalisation(
        "group_norm",
        "F.group_norm(data, num_groups, weight, bias, eps)",
        "ref.group_norm(data, num_groups, weight, bias, eps=eps)",
        _channels(2, IMAGES),
        {"num_groups": 8, "eps": 1e-5},
    ),
    _normalisation(
        "group_norm_channels_last",
        "F.group_norm(data, num_groups, weight, bias, eps)",
        "ref.group_norm(data, num_groups, weight, bias, eps=eps)",
        _channels(2, IMAGES, channels_last),
        {"num_groups": 8, "eps": 1e-5},
    ),
    _normalisation(
        "instance_norm",
        "F.instance_norm(data, weight=weight, bias=bias, eps=eps)",
        "ref.group_norm(data, data.shape[1], weight, bias, eps=eps)",
        _channels(2, IMAGES),
        {"eps": 1e-5},
    ),
    _normalisation(
        "instance_norm_1d",
        "F.instance_norm(data, weight=weight, bias=bias, eps=eps)",
        "ref.group_norm(data, data.shape[1], weight, bias, eps=eps)",
        _channels(1, SERIES),
        {"eps": 1e-5},
    ),
    _normalisation(
        "local_response_norm",
        "F.local_response_norm(data, size, alpha=alpha, beta=beta, k=k)",
        "ref.local_response_norm(data, size, alpha=alpha, beta=beta, k=k)",
        by_size(lambda n, c, s: {"data": Input(shape=(n, c, s, s))}, *IMAGES),
        {"size": 5, "alpha": 1e-2, "beta": 0.75, "k": 1.0},
        flops=per_output(10.0),
        dtypes=("float32", "float64"),
    ),
    _normalisation(
        "weight_norm",
        "torch._weight_norm(data, magnitude, 0)",
        "ref.weight_norm(data, magnitude)",
        by_size(
            lambda n, k: {"data": Input(shape=(n, k)), "magnitude": Input(shape=(n, 1), draw=POSITIVE)},
            (64, 64),
            (1024, 1024),
            (4096, 4096),
        ),
        {},
        flops=per_output(4.0),
    ),
)
