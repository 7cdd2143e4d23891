"""Resampling: upsampling by integer factors on tiles; otherwise the channels are split, and ranks have whole images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from tessera.geometry import Box, Interval
from tessera.spatial.tensor.frames import FramePlan
from tessera.spatial.tensor.layout import TensorLayout, make_plain_layout, replace_dim
from tessera.spatial.tensor.rules.padding import pad_tiles, pad_tiles_backward
from tessera.spatial.tensor.rules.window_plans import crop_to_part, to_layout
from tessera.spatial.tensor.split_tensor import (
    NO_RULE,
    Call,
    SplitGroup,
    SplitTensor,
    get_local,
    move_split,
    redistribute,
    rule,
)

aten = torch.ops.aten


def scale_layout(layout: TensorLayout, shape: Sequence[int], factors: Sequence[int]) -> TensorLayout:
    """Return the layout of an image in which every pixel has become a block of `factors` pixels."""
    lead = len(shape) - len(factors)
    steps = (1,) * lead + tuple(factors)
    boxes = []
    for rank in range(layout.ranks):
        own = layout.get_dim_box(rank).dims
        dims = [
            Interval(part.start * step, part.stop * step) if dim >= lead else Interval(0, shape[dim])
            for dim, (part, step) in enumerate(zip(own, steps, strict=True))
        ]
        dims[0] = own[0]
        boxes.append(Box(tuple(dims)))
    return make_plain_layout(shape, boxes)


def _is_tiles(layout: TensorLayout) -> bool:
    return layout.is_plain and layout.is_exclusive and not layout.is_whole and 1 not in layout.split_dims


@rule(aten.pixel_shuffle.default, aten.pixel_unshuffle.default)
def shuffle_pixels(call: Call) -> Any:
    tensor, factor = call.args
    layout, group = tensor.layout_on_ranks, call.group
    if tensor.dim() != 4 or not _is_tiles(layout):
        return NO_RULE
    samples, channels, height, width = tensor.shape
    if call.func is aten.pixel_shuffle.default:
        target = scale_layout(
            layout, (samples, channels // factor**2, height * factor, width * factor), (factor, factor)
        )
        return call.wrap(_shuffle(call, get_local(tensor), target), target)
    shape = (samples, channels * factor**2, height // factor, width // factor)
    small = group.get_tiles(shape, 2)
    source = scale_layout(small, tensor.shape, (factor, factor))
    return call.wrap(_shuffle(call, redistribute(tensor, source, group), small), small)


def _shuffle(call: Call, part: Tensor, target: TensorLayout) -> Tensor:
    """Shuffle the pixels of a part, also if it is empty (torch would not change the shape of an empty tensor)."""
    if part.numel():
        return call.func(part, call.args[1])  # type: ignore[no-any-return]
    return part.new_empty(target.get_local_shape(call.group.rank))


# Operators that process every channel of every sample separately, and their number of spatial dims.
BY_CHANNEL: dict[Any, int] = {}
for _name, _count in (
    ("upsample_nearest1d", 1), ("upsample_nearest2d", 2), ("upsample_nearest3d", 3),
    ("_upsample_nearest_exact1d", 1), ("_upsample_nearest_exact2d", 2), ("_upsample_nearest_exact3d", 3),
    ("upsample_linear1d", 1), ("upsample_bilinear2d", 2), ("upsample_bicubic2d", 2), ("upsample_trilinear3d", 3),
    ("_upsample_bilinear2d_aa", 2), ("_upsample_bicubic2d_aa", 2),
    ("_adaptive_avg_pool2d", 2), ("_adaptive_avg_pool3d", 3),
    ("adaptive_max_pool2d", 2), ("adaptive_max_pool3d", 3),
    ("reflection_pad1d", 1), ("reflection_pad2d", 2), ("reflection_pad3d", 3),
    ("replication_pad1d", 1), ("replication_pad2d", 2), ("replication_pad3d", 3),
    ("max_unpool2d", 2), ("max_unpool3d", 3),
):  # fmt: skip
    if hasattr(aten, _name):
        BY_CHANNEL[getattr(aten, _name).default] = _count
# Nearest and linear upsampling by whole factors: margin of input pixels that an output may read.
MARGINS = {
    aten.upsample_nearest1d.default: 0,
    aten.upsample_nearest2d.default: 0,
    aten.upsample_nearest3d.default: 0,
    aten._upsample_nearest_exact1d.default: 0,
    aten._upsample_nearest_exact2d.default: 0,
    aten._upsample_nearest_exact3d.default: 0,
    aten.upsample_linear1d.default: 1,
    aten.upsample_bilinear2d.default: 1,
    aten.upsample_trilinear3d.default: 1,
    aten.upsample_bicubic2d.default: 3,
}


def _is_padding(func: Any) -> bool:
    return "_pad" in str(func)


@rule(*BY_CHANNEL)
def compute_by_channel(call: Call) -> Any:
    """Compute an operator that processes every channel separately: on tiles if possible, else with channels split."""
    tensor, spatial, group = call.args[0], BY_CHANNEL[call.func], call.group
    if not isinstance(tensor, SplitTensor) or tensor.dim() != spatial + 2:
        return NO_RULE
    if any(isinstance(value, Tensor) for value in call.args[1:]):
        return _compute_with_indices(call)
    on_tiles = pad_tiles(call) if _is_padding(call.func) else _upsample_tiles(call, tensor, spatial)
    if on_tiles is not NO_RULE:
        return on_tiles
    local, layout = move_split(tensor, range(2, tensor.dim()), group)
    results = _run(call.func, (local, *call.args[1:]), call.kwargs)
    wrapped = [_to_tiles(call, part, layout) for part in (results if isinstance(results, tuple) else (results,))]
    return tuple(wrapped) if isinstance(results, tuple) else wrapped[0]


def _run(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call an operator that processes every channel separately; unlike torch, accept empty batches and no channels."""
    samples, channels = args[0].shape[:2]
    if samples and channels:
        return func(*args, **kwargs)
    lead = max(1, samples), max(1, channels)
    filled = [value.new_zeros((*lead, *value.shape[2:])) if isinstance(value, Tensor) else value for value in args]
    return tree_map_only(Tensor, lambda part: part[:samples, :channels], func(*filled, **kwargs))


def _compute_with_indices(call: Call) -> Any:
    """Compute an operator whose second argument is a tensor of the same shape, such as max_unpool2d."""
    tensor, indices = call.args[:2]
    local, layout = move_split(tensor, range(2, tensor.dim()), call.group)
    part = _run(call.func, (local, redistribute(indices, layout, call.group), *call.args[2:]), call.kwargs)
    return _to_tiles(call, part, layout)


def _to_tiles(call: Call, part: Tensor, layout: TensorLayout) -> SplitTensor:
    """Redistribute a result that is split by channels or samples to tiles, if it is large enough."""
    for dim in range(2, part.dim()):
        layout = replace_dim(layout, dim, part.shape[dim], [Interval(0, part.shape[dim])] * layout.ranks)
    result = call.wrap(part, layout)
    if any(size < 2 * call.group.ranks for size in part.shape[2:]):
        return result
    return to_layout(result, call.group.get_tiles(result.shape, part.dim() - 2), call.group)


def _read_factors(sizes: Sequence[int], target: Sequence[int]) -> tuple[int, ...] | None:
    """Return the integer factors of an upsampling; None if a factor is not an integer."""
    if any(new % old for new, old in zip(target, sizes, strict=True)):
        return None
    return tuple(new // old for new, old in zip(target, sizes, strict=True))


def _maps_blocks_uniformly(func: Any, args: Sequence[Any], factors: Sequence[int], spatial: int) -> bool:
    """Return whether an upsampling with these arguments applies the same weights to every block of pixels.

    Otherwise the result of a pixel depends on its position in the image, and tiles cannot be upsampled separately.
    """
    linear = func in (
        aten.upsample_linear1d.default, aten.upsample_bilinear2d.default, aten.upsample_trilinear3d.default,
        aten.upsample_bicubic2d.default,
    )  # fmt: skip
    rest = list(args)
    if linear and rest and rest.pop(0):
        return False  # align_corners: the grid of the output depends on the size of the image
    pairs = zip(rest, factors, strict=False)
    return all(scale is None or abs(scale - factor) < 1e-12 for scale, factor in pairs)


def _upsample_tiles(call: Call, tensor: SplitTensor, spatial: int) -> Any:
    margin, layout, group = MARGINS.get(call.func), tensor.layout_on_ranks, call.group
    if margin is None or not _is_tiles(layout) or call.kwargs:
        return NO_RULE
    target = call.args[1]
    factors = _read_factors(tensor.shape[2:], target)
    if factors is None or not _maps_blocks_uniformly(call.func, call.args[2:], factors, spatial):
        return NO_RULE
    output = scale_layout(layout, (*tensor.shape[:2], *target), factors)
    frames = _plan_margin(group, layout, margin, spatial)
    frame = frames.build(tensor)
    if 0 in frame.shape:
        return call.wrap(frame.new_empty(output.get_local_shape(group.rank)), output)
    grown = call.func(
        frame, [size * factor for size, factor in zip(frame.shape[2:], factors, strict=True)], *call.args[2:]
    )
    own, start = layout.get_dim_box(group.rank).dims[2:], frames.frame.dims[2:]
    index = tuple(
        slice((part.start - first.start) * factor, (part.stop - first.start) * factor)
        for part, first, factor in zip(own, start, factors, strict=True)
    )
    return call.wrap(grown[(..., *index)], output)


def _plan_margin(group: SplitGroup, layout: TensorLayout, margin: int, spatial: int) -> FramePlan:
    """Return the frames of tiles with a margin of pixels, clipped to the image."""
    key = "margin", layout, margin, spatial
    if key not in group.plans:
        lead = len(layout.shape) - spatial
        boxes = []
        for rank in range(group.ranks):
            own = layout.get_dim_box(rank)
            dims = [
                part
                if dim < lead or not own
                else Interval(max(0, part.start - margin), min(layout.shape[dim], part.stop + margin))
                for dim, part in enumerate(own.dims)
            ]
            boxes.append(Box(tuple(dims)) if own else Box(tuple(Interval(0, 0) for _ in dims)))
        group.plans[key] = FramePlan(group, layout, boxes)
    plan: FramePlan = group.plans[key]
    return plan


# Backward operators (gradient, output size, input size, …) and their forward operators.
BACKWARD = {
    getattr(aten, f"{forward.__name__.split('.')[0]}_backward").default: forward
    for forward in BY_CHANNEL
    if hasattr(aten, f"{forward.__name__.split('.')[0]}_backward")
}
WITH_SIZES = {backward: forward for backward, forward in BACKWARD.items() if "upsample" in str(forward)}
WITH_INPUT = {backward: forward for backward, forward in BACKWARD.items() if backward not in WITH_SIZES}


@rule(*WITH_SIZES)
def upsample_backward(call: Call) -> Any:
    grad, target, sizes = call.args[:3]
    group, spatial = call.group, len(sizes) - 2
    if not isinstance(grad, SplitTensor):
        return NO_RULE
    forward = WITH_SIZES[call.func]
    margin, factors = MARGINS.get(forward), _read_factors(sizes[2:], target)
    small = group.get_tiles(sizes, spatial)
    if (
        margin is not None
        and factors is not None
        and _maps_blocks_uniformly(forward, call.args[3:], factors, spatial)
        and not any(size < 2 * group.ranks for size in sizes[2:])
    ):
        return _upsample_tiles_backward(call, small, margin, factors)
    local, layout = move_split(grad, range(2, grad.dim()), group)
    shape = [max(1, size) for size in local.shape[:2]]
    part = _run(call.func, (local, target, (*shape, *sizes[2:]), *call.args[3:]), call.kwargs)
    return _to_tiles(call, part, layout)


def _upsample_tiles_backward(call: Call, small: TensorLayout, margin: int, factors: Sequence[int]) -> Any:
    grad, target = call.args[:2]
    group = call.group
    key = "upsample_backward", small, margin, tuple(factors)
    large = scale_layout(small, (*small.shape[:2], *target), factors)
    if key not in group.plans:
        boxes, starts = [], []
        for rank in range(group.ranks):
            own = small.get_dim_box(rank)
            dims = [
                Interval(max(0, part.start - margin), min(small.shape[2 + dim], part.stop + margin))
                if own
                else Interval(0, 0)
                for dim, part in enumerate(own.dims[2:])
            ]
            starts.append([part.start for part in dims])
            scaled = [Interval(p.start * f, p.stop * f) for p, f in zip(dims, factors, strict=True)]
            boxes.append(Box((*own.dims[:2], *scaled)) if own else Box(tuple(Interval(0, 0) for _ in own.dims)))
        group.plans[key] = FramePlan(group, large, boxes), starts[group.rank]
    frames, start = group.plans[key]
    region = frames.build(to_layout(grad, large, group))
    if 0 in region.shape:
        return call.wrap(region.new_zeros(small.get_local_shape(group.rank)), small)
    inner = [size // factor for size, factor in zip(region.shape[2:], factors, strict=True)]
    part = call.func(region.contiguous(), region.shape[2:], (*region.shape[:2], *inner), *call.args[3:])
    return call.wrap_cropped(crop_to_part(part, start, small, group), small)


@rule(*WITH_INPUT)
def compute_by_channel_backward(call: Call) -> Any:
    """Compute a backward operator (gradient, input, …) with the channels split."""
    grad, tensor = call.args[:2]
    if tensor.dim() != BY_CHANNEL[WITH_INPUT[call.func]] + 2:
        return NO_RULE
    on_tiles = pad_tiles_backward(call) if _is_padding(call.func) else NO_RULE
    if on_tiles is not NO_RULE:
        return on_tiles
    source = tensor if isinstance(tensor, SplitTensor) else grad
    local, layout = move_split(source, range(2, source.dim()), call.group)
    if source is tensor:
        of_grad = layout
        for dim in range(2, grad.dim()):
            of_grad = replace_dim(of_grad, dim, grad.shape[dim], [Interval(0, grad.shape[dim])] * layout.ranks)
    else:
        return NO_RULE
    rest = [redistribute(value, of_grad, call.group) if isinstance(value, Tensor) else value for value in call.args[2:]]
    grads = redistribute(grad, of_grad, call.group).contiguous()
    part = _run(call.func, (grads, local.contiguous(), *rest), call.kwargs)
    return _to_tiles(call, part, layout)
