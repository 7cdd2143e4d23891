"""Max and average pooling on the frames that the outputs read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor

from tessera.geometry import Box, Interval, Window
from tessera.spatial.tensor.frames import FramePlan
from tessera.spatial.tensor.layout import TensorLayout
from tessera.spatial.tensor.rules.wide_windows import build_own_frame
from tessera.spatial.tensor.rules.window_plans import (
    WindowPlan,
    choose_tiles,
    crop_to_part,
    find_frame_origin,
    find_output_size,
    find_outputs,
    make_dims_box,
    resize_samples,
    spread,
    stays_whole,
    to_layout,
)
from tessera.spatial.tensor.split_tensor import (
    NO_RULE,
    Call,
    SplitGroup,
    SplitTensor,
    get_local,
    redistribute,
    rule,
)

aten = torch.ops.aten


POOLS = {
    aten.max_pool2d_with_indices.default: (2, aten.max_pool2d_with_indices_backward.default),
    aten.max_pool3d_with_indices.default: (3, aten.max_pool3d_with_indices_backward.default),
}


def _read_pool(call: Call, start: int, spatial: int) -> Window:
    """Return the window of a max pool from the arguments after position `start`."""
    kernel, stride = call.get(start, "kernel_size"), call.get(start + 1, "stride", ())
    padding, dilation = call.get(start + 2, "padding", 0), call.get(start + 3, "dilation", 1)
    ceil_mode = call.get(start + 4, "ceil_mode", False)
    values = [
        (value,) * spatial if isinstance(value, int) else spread(tuple(value), spatial)
        for value in (kernel, stride or kernel, padding, dilation)
    ]
    return Window.of(values[0], stride=values[1], padding=values[2], dilation=values[3], ceil_mode=ceil_mode)


@rule(*POOLS)
def pool_max(call: Call) -> Any:
    """Max pooling. The indices count the pixels of the whole image, as in plain torch."""
    spatial, _ = POOLS[call.func]
    tensor, group = call.args[0], call.group
    if tensor.dim() != spatial + 2:
        return NO_RULE
    window = _read_pool(call, 1, spatial)
    layout = choose_tiles(tensor, spatial, group)
    if layout is None or stays_whole(tensor, spatial, group):
        return _pool_in_place(call, tensor)
    sizes = find_output_size(window, layout.shape[2:])
    if sizes is None or any(
        2 * before > length for (before, _), length in zip(window.padding, window.extent, strict=True)
    ):
        return NO_RULE
    plan = _plan_pool(group, layout, window, sizes)
    lowest = float("-inf") if tensor.is_floating_point() else torch.iinfo(tensor.dtype).min
    frame = build_own_frame(to_layout(tensor, layout, group), plan, window, lowest)
    shape = plan.output.get_local_shape(group.rank)
    if 0 in shape:
        return call.wrap(frame.new_empty(shape), plan.output), call.wrap(
            frame.new_empty(shape, dtype=torch.int64), plan.output
        )
    values, indices = call.func(frame, window.kernel, window.stride, (0,) * spatial, window.dilation, False)
    start = [part.start for part in plan.inputs.frame.dims[2:]]
    places = call.wrap(indices, plan.output)
    places.pending = partial(_shift_indices, indices, frame.shape[2:], start, layout.shape[2:])
    return call.wrap(values, plan.output), places


def _plan_pool(group: SplitGroup, layout: TensorLayout, window: Window, sizes: Sequence[int]) -> WindowPlan:
    """Plan pooling: all padding is part of the frames, and windows may extend beyond it in ceil mode."""
    key = "pool", layout, window
    if key not in group.plans:
        spatial = len(window.kernel)
        output = group.get_tiles((*layout.shape[:2], *sizes), spatial)
        reads, grads = [], []
        for rank in range(group.ranks):
            own, result = layout.get_dim_box(rank), output.get_dim_box(rank)
            read = window.compute_input_box(Box((Interval(0, 1), *result.dims[2:]))).dims[1:]
            reads.append(make_dims_box(layout.shape, read if result else [Interval(0, 0)] * spatial))
            touched = [find_outputs(window, dim, own.dims[2 + dim], sizes[dim]) for dim in range(spatial)]
            grads.append(make_dims_box(output.shape, touched if own else [Interval(0, 0)] * spatial))
        group.plans[key] = WindowPlan(
            layout=layout,
            output=output,
            padding=(),
            inputs=FramePlan(group, layout, reads),
            grads=FramePlan(group, output, grads),
        )
    plan: WindowPlan = group.plans[key]
    return plan


def _pool_in_place(call: Call, tensor: Tensor) -> Any:
    """Pool whole images without redistribution: all images on every rank, or each rank its own samples."""
    if not isinstance(tensor, SplitTensor):
        return NO_RULE
    results = call.func(get_local(tensor), *call.args[1:], **call.kwargs)
    layout = tensor.layout_on_ranks
    wrap = [call.wrap(part, resize_samples(layout, part.shape)) for part in _as_list(results)]
    return tuple(wrap) if isinstance(results, tuple) else wrap[0]


def _as_list(results: Any) -> list[Tensor]:
    return list(results) if isinstance(results, tuple | list) else [results]


def _shift_indices(indices: Tensor, sizes: Sequence[int], start: Sequence[int], image: Sequence[int]) -> Tensor:
    """Convert flat indices of pixels in a frame with origin `start` to flat indices in an image."""
    steps, frame_steps = [1], [1]
    for size, frame_size in zip(image[:0:-1], sizes[:0:-1], strict=True):
        steps.insert(0, steps[0] * size)
        frame_steps.insert(0, frame_steps[0] * frame_size)
    result = indices + sum(first * step for first, step in zip(start, steps, strict=True))
    for dim in range(len(sizes) - 1):  # the stride of a dim in flat indices differs between image and frame
        change = steps[dim] - frame_steps[dim]
        if change:
            along = torch.div(indices, frame_steps[dim], rounding_mode="floor")
            if dim:
                along = along % sizes[dim]
            result += along * change
    return result


@rule(aten.max_pool2d_with_indices_backward.default, aten.max_pool3d_with_indices_backward.default)
def pool_max_backward(call: Call) -> Any:
    grad, tensor, indices = call.args[0], call.args[1], call.args[-1]
    spatial = 2 if call.func is aten.max_pool2d_with_indices_backward.default else 3
    group = call.group
    if tensor.dim() != spatial + 2 or len(call.args) != 8:
        return NO_RULE
    window = _read_pool(call, 2, spatial)
    layout = choose_tiles(tensor, spatial, group)
    if layout is None or stays_whole(tensor, spatial, group):
        if not isinstance(tensor, SplitTensor):
            return NO_RULE
        own = tensor.layout_on_ranks
        results = [redistribute(value, resize_samples(own, value.shape), group) for value in (grad, indices)]
        return call.wrap(call.func(results[0], get_local(tensor), *call.args[2:-1], results[1]), own)
    sizes = window.compute_output_size(layout.shape[2:])
    plan = _plan_pool(group, layout, window, sizes)
    region = plan.grads.build(to_layout(grad, plan.output, group))
    places = plan.grads.build(to_layout(indices, plan.output, group))
    part_shape = layout.get_local_shape(group.rank)
    if 0 in region.shape or 0 in part_shape:
        return call.wrap(region.new_zeros(part_shape), layout)
    outputs = plan.grads.frame.dims[2:]
    start = find_frame_origin(outputs, window)
    read = [(region.shape[2 + dim] - 1) * window.stride[dim] + window.extent[dim] for dim in range(spatial)]
    local_indices = _shift_indices(places, layout.shape[2:], [-value for value in start], read)
    dummy = region.new_empty((*region.shape[:2], *read))
    grad_frame = call.func(
        region.contiguous(),
        dummy,
        window.kernel,
        window.stride,
        (0,) * spatial,
        window.dilation,
        False,
        local_indices.contiguous(),
    )
    return call.wrap_cropped(crop_to_part(grad_frame, start, layout, group), layout)


AVERAGES = {aten.avg_pool2d.default: 2, aten.avg_pool3d.default: 3}
AVERAGES_BACKWARD = {aten.avg_pool2d_backward.default: 2, aten.avg_pool3d_backward.default: 3}


def _read_average(call: Call, start: int, spatial: int) -> tuple[Window, bool, int | None]:
    """Return the window of an average pool, whether padding counts, and its divisor, if given."""
    kernel, stride = call.get(start, "kernel_size"), call.get(start + 1, "stride", ())
    padding, ceil_mode = call.get(start + 2, "padding", 0), call.get(start + 3, "ceil_mode", False)
    include = call.get(start + 4, "count_include_pad", True)
    divisor = call.get(start + 5, "divisor_override")
    values = [
        (value,) * spatial if isinstance(value, int) else spread(tuple(value), spatial)
        for value in (kernel, stride or kernel, padding)
    ]
    return Window.of(values[0], stride=values[1], padding=values[2], ceil_mode=ceil_mode), include, divisor


def _count_pixels(
    window: Window,
    include_padding: bool,
    divisor: int | None,
    sizes: Sequence[int],
    outputs: Sequence[Interval],
) -> Tensor:
    """Return the divisor of every output pixel of a box, as a tensor that broadcasts over samples and channels."""
    if divisor is not None:
        return torch.tensor(float(divisor), dtype=torch.float64)
    counts = []
    for dim, part in enumerate(outputs):
        size, (before, after) = sizes[dim], window.padding[dim]
        first = torch.arange(part.start, part.stop) * window.stride[dim] - before
        last = torch.clamp(first + window.kernel[dim], max=size + after)
        if not include_padding:
            first, last = first.clamp(min=0), last.clamp(max=size)
        counts.append((last - first).double())
    result = counts[0]
    for count in counts[1:]:
        result = result.unsqueeze(-1) * count
    return result


@rule(*AVERAGES)
def pool_mean(call: Call) -> Any:
    spatial, tensor, group = AVERAGES[call.func], call.args[0], call.group
    if tensor.dim() != spatial + 2 or not tensor.is_floating_point():
        return NO_RULE
    window, include, divisor = _read_average(call, 1, spatial)
    layout = choose_tiles(tensor, spatial, group)
    if layout is None or stays_whole(tensor, spatial, group):
        return _pool_in_place(call, tensor)
    sizes = find_output_size(window, layout.shape[2:])
    if sizes is None or any(
        2 * before > length for (before, _), length in zip(window.padding, window.extent, strict=True)
    ):
        return NO_RULE
    plan = _plan_pool(group, layout, window, sizes)
    frame = build_own_frame(to_layout(tensor, layout, group), plan, window)
    shape = plan.output.get_local_shape(group.rank)
    if 0 in shape:
        return call.wrap(frame.new_empty(shape), plan.output)
    area = prod(window.kernel)
    means = call.func(frame, window.kernel, window.stride, (0,) * spatial, False, True, area)
    own = plan.output.get_dim_box(group.rank).dims[2:]
    counts = _count_pixels(window, include, divisor, layout.shape[2:], own)
    return call.wrap(means * (area / counts).to(means), plan.output)


@rule(*AVERAGES_BACKWARD)
def pool_mean_backward(call: Call) -> Any:
    spatial, group = AVERAGES_BACKWARD[call.func], call.group
    grad, tensor = call.args[:2]
    if tensor.dim() != spatial + 2:
        return NO_RULE
    window, include, divisor = _read_average(call, 2, spatial)
    layout = choose_tiles(tensor, spatial, group)
    if layout is None or stays_whole(tensor, spatial, group):
        if not isinstance(tensor, SplitTensor):
            return NO_RULE
        own = tensor.layout_on_ranks
        part = redistribute(grad, resize_samples(own, grad.shape), group)
        return call.wrap(call.func(part, get_local(tensor), *call.args[2:], **call.kwargs), own)
    plan = _plan_pool(group, layout, window, window.compute_output_size(layout.shape[2:]))
    region = plan.grads.build(to_layout(grad, plan.output, group))
    part_shape = layout.get_local_shape(group.rank)
    if 0 in region.shape or 0 in part_shape:
        return call.wrap(region.new_zeros(part_shape), layout)
    outputs = plan.grads.frame.dims[2:]
    area = prod(window.kernel)
    counts = _count_pixels(window, include, divisor, layout.shape[2:], outputs)
    region = region * (area / counts).to(region)
    start = find_frame_origin(outputs, window)
    read = [(region.shape[2 + dim] - 1) * window.stride[dim] + window.extent[dim] for dim in range(spatial)]
    dummy = region.new_empty((*region.shape[:2], *read))
    grad_frame = call.func(region.contiguous(), dummy, window.kernel, window.stride, (0,) * spatial, False, True, area)
    return call.wrap_cropped(crop_to_part(grad_frame, start, layout, group), layout)
