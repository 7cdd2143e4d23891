"""Functions and methods of tensors on values that are cut over ranks; importing this fills their table."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tessera.errors import TesseraError
from tessera.models.tracing import WRITING
from tessera.spatial.network.calls import Call, alike, handles
from tessera.spatial.network.steps import Steps, Value


def homonyms(names: str) -> list[object]:
    """What torch and Python call by these names: functions, methods, and those that work in place."""
    found: dict[object, None] = {}
    for name in names.split():
        for home in (torch, F, operator):
            places = (name, f"i{name}") if home is operator else (name, f"{name}_")
            functions = (getattr(home, place, None) for place in places)
            found |= {function: None for function in functions if callable(function)}  # torch.float is a dtype
        found |= {place: None for place in (name, f"{name}_") if hasattr(Tensor, place)}
        if f"i{name}" in WRITING:
            found[WRITING[f"i{name}"]] = None
    return list(found)


@handles(
    *homonyms("""
        abs add addcmul ceil celu clamp clamp_max clamp_min clone contiguous cos detach div double elu erf exp expm1
        float floor gelu half hardshrink hardsigmoid hardswish hardtanh leaky_relu lerp log log1p logsigmoid maximum
        minimum mish mul neg pos pow reciprocal relu relu6 round rsqrt selu sigmoid sign silu sin softplus softshrink
        softsign sqrt square sub tanh tanhshrink to true_divide truediv where
    """)
)
def pointwise(call: Call, steps: Steps) -> Value:
    """Acts on every number alone: each rank calls it on its own."""
    kind, inputs = alike(call, steps)
    return steps.add(call.name, call, inputs, call.shape, kind)


@handles(torch.cat, torch.concat, torch.concatenate)
def concatenated(call: Call, steps: Steps) -> Value:
    return _over_channels(call, steps, call.argument("dim", 1, 0))


@handles(F.softmax, torch.softmax, "softmax", F.log_softmax, torch.log_softmax, "log_softmax")
def softmax(call: Call, steps: Steps) -> Value:
    return _over_channels(call, steps, call.argument("dim", 1, None))


@handles(F.normalize)
def normalised(call: Call, steps: Steps) -> Value:
    return _over_channels(call, steps, call.argument("dim", 2, 1))


def _over_channels(call: Call, steps: Steps, dim: Any) -> Value:
    """Acts on the channels of each pixel alone."""
    _check_channels(call, dim)
    return pointwise(call, steps)


def _check_channels(call: Call, dim: Any) -> None:
    if not isinstance(dim, int) or dim % len(call.values[0].shape) != 1:
        raise call.refused(f"goes over dim {dim}, and only channels (dim 1) are all on one rank")


@handles(torch.chunk, "chunk", torch.split, "split")
def split(call: Call, steps: Steps) -> tuple[Value, ...]:
    """Channels in several pieces."""
    _check_channels(call, call.argument("dim", 2, 0))
    kind, (value,) = alike(call, steps)
    found, start = [], 0
    for number, piece in enumerate(call.uncut):
        take = partial(torch.narrow, dim=1, start=start, length=piece.shape[1])
        found.append(steps.add(f"{call.name}[{number}]", take, [value], piece.shape, kind))
        start += piece.shape[1]
    return tuple(found)


@handles(operator.getitem)
def indexed(call: Call, steps: Steps) -> Value:
    """Some of the channels."""
    index = call.args[1]
    of_channels = isinstance(index, tuple) and len(index) > 1 and isinstance(index[1], slice)
    if not of_channels or any(part != slice(None) for part in (*index[:1], *index[2:])):
        raise call.refused("takes pixels out of images that are cut; channels it could")
    return pointwise(call, steps)


PADDINGS = {"constant": "Constant", "reflect": "Reflection", "replicate": "Replication", "circular": "Circular"}


@handles(F.pad)
def padded(call: Call, steps: Steps) -> Value:
    """Around the image by a layer; more channels on each rank alone."""
    (value,) = call.values
    pads, dims = tuple(call.argument("pad", 1, ())), len(value.shape) - 2
    if not any(pads[: 2 * dims]) and len(pads) <= 2 * dims + 2:
        return pointwise(call, steps)
    mode = call.argument("mode", 2, "constant")
    if len(pads) > 2 * dims or mode not in PADDINGS:
        raise call.refused("pads pixels and channels at once, or in a way that is not known")
    fill = [call.argument("value", 3, None) or 0.0] if mode == "constant" else []
    module = getattr(nn, f"{PADDINGS[mode]}Pad{dims}d")((*pads, *(0,) * (2 * dims - len(pads))), *fill)
    return steps.layer(call.name, module, value, call.shape)


@handles(torch.mean, "mean")
def mean(call: Call, steps: Steps) -> Value:
    """Over all pixels, or over the channels of each."""
    (value,) = call.values
    dims, keep = call.argument("dim", 1, None), call.argument("keepdim", 2, False)
    if dims is None or call.kwargs.keys() - {"dim", "keepdim"}:
        raise call.refused("goes over samples too, or into another dtype")
    over = {dim % len(value.shape) for dim in ((dims,) if isinstance(dims, int) else dims)}
    if over == {1} and keep:
        return pointwise(call, steps)
    pools = {3: nn.AdaptiveAvgPool1d, 4: nn.AdaptiveAvgPool2d, 5: nn.AdaptiveAvgPool3d}
    if over != set(range(2, len(value.shape))) or len(value.shape) not in pools:
        raise call.refused(f"over dims {sorted(over)} is neither over all pixels nor over channels with keepdim")
    pooled = (*value.shape[:2], *(1 for _ in value.shape[2:]))
    found = steps.layer(call.name, pools[len(value.shape)](1), value, pooled)
    return found if keep else _reshaped(call, steps, found)


@handles(torch.flatten, "flatten", torch.reshape, "reshape", "view")
@handles(torch.squeeze, "squeeze", torch.unsqueeze, "unsqueeze")
def reshaped(call: Call, steps: Steps) -> Value:
    """Each sample in another shape; the sizes that the call names are those of the uncut network."""
    (value,) = call.values
    return _reshaped(call, steps, value)


def _reshaped(call: Call, steps: Steps, value: Value) -> Value:
    shape = call.shape
    if shape == value.shape:
        return value
    if len(shape) < 2 or shape[0] != value.shape[0]:
        raise call.refused("mixes samples, or leaves no channels")
    if value.has("tiles"):
        if not value.is_spread:
            raise call.refused("needs whole images, and here they are cut")
        value = steps.moved(value, "whole")
    assert value.placed is not None, "what is made of weights alone is not handled here"
    kind = value.placed.kind
    samples, *pixels = steps.placed(kind, shape).box(steps.settings.transport.rank).shape
    own = (samples, shape[1], *pixels)
    return steps.add(call.name, lambda part: part.reshape(own), [value], shape, kind)


def as_module(*functions: object) -> Callable[[Callable[..., nn.Module]], Callable[..., nn.Module]]:
    """Register a function of the arguments behind the image that gives the module which does the same."""

    def register(module_of: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
        @handles(*functions)
        def handler(call: Call, steps: Steps) -> Value:
            (value,) = call.values
            named = {name: argument for name, argument in call.kwargs.items() if name != "input"}
            rest = call.args if "input" in call.kwargs else call.args[1:]
            return steps.layer(call.name, module_of(*rest, **named), value, call.shape)

        return module_of

    return register


@as_module(F.max_pool2d, torch.max_pool2d)
def max_pool2d(
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> nn.Module:
    return nn.MaxPool2d(kernel_size, stride or None, padding, dilation, return_indices, ceil_mode)


@as_module(F.avg_pool2d)
def avg_pool2d(kernel_size: Any, stride: Any = None, *rest: Any, **named: Any) -> nn.Module:
    return nn.AvgPool2d(kernel_size, stride or None, *rest, **named)


@as_module(F.adaptive_avg_pool2d)
def adaptive_avg_pool2d(output_size: Any) -> nn.Module:
    return nn.AdaptiveAvgPool2d(output_size)


@as_module(F.interpolate)
def interpolate(
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> nn.Module:
    if antialias:
        raise TesseraError("interpolate with antialias is not known on images that are cut", do="leave it out")
    size = tuple(size) if isinstance(size, Sequence) else size
    return nn.Upsample(size, scale_factor, mode, align_corners, recompute_scale_factor)


@as_module(F.dropout2d)
def dropout2d(p: float = 0.5, training: bool = True, inplace: bool = False) -> nn.Module:
    return nn.Dropout2d(p, inplace).train(training)


@as_module(F.dropout)
def dropout(p: float = 0.5, training: bool = True, inplace: bool = False) -> nn.Module:
    return nn.Dropout(p, inplace).train(training)
