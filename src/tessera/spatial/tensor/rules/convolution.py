"""Convolutions and transposed convolutions: every rank convolves its frame.

A frame is a rank's tile with the halo and the padding that its output needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from tessera.geometry import Box, Interval, Window
from tessera.spatial.tensor.frames import FORMATS, FramePlan, is_channels_last
from tessera.spatial.tensor.gradient_buckets import sum_weights
from tessera.spatial.tensor.layout import TensorLayout, make_whole
from tessera.spatial.tensor.margins import wrap_wide
from tessera.spatial.tensor.rules.overlapped_windows import convolve_overlapped
from tessera.spatial.tensor.rules.wide_windows import build_own_frame, build_wide_frame
from tessera.spatial.tensor.rules.window_plans import (
    WindowPlan,
    choose_tiles,
    crop_to_part,
    find_frame_origin,
    find_output_size,
    list_native,
    make_dims_box,
    plan_window,
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
    gather,
    get_local,
    redistribute,
    rule,
)
from tessera.spatial.tensor.statistics import get_sum_dtype

aten = torch.ops.aten


@lru_cache(maxsize=4096)
def make_window(
    kernel: tuple[int, ...], stride: tuple[int, ...], padding: tuple[int, ...], dilation: tuple[int, ...]
) -> Window:
    """Return the window of a convolution; windows are cached, because making one takes longer than a lookup."""
    return Window.of(kernel, stride=stride, dilation=dilation, padding=padding)


@rule(aten.convolution.default)
def convolve(call: Call) -> Any:
    tensor, weight, bias = call.args[:3]
    group, spatial = call.group, weight.dim() - 2
    if isinstance(tensor, SplitTensor) and group.halo_depth == 1:  # a convolution that was planned before
        key = "convolve", tensor.layout_on_ranks, weight.shape, *map(tuple, call.args[3:6]), *call.args[6::2]
        planned = group.plans.get(key)
        if planned is not None:
            plan, window, settings = planned
            weight, bias = gather(weight), gather(bias)  # in the same order as on a rank that has no plan
            return _convolve_frame(tensor, weight, bias, plan, window, settings)
    weight, bias = gather(weight), gather(bias)
    stride, padding, dilation, transposed, output_padding, groups = call.args[3:]
    if tensor.dim() != spatial + 2:
        return NO_RULE
    rest = [spread(values, spatial) for values in (stride, padding, dilation)]
    if stays_whole(tensor, spatial, group):
        whole = aten.convolution.default(gather(tensor), weight, bias, *rest, transposed, output_padding, groups)
        return call.wrap(whole, make_whole(whole.shape, group.ranks))
    layout = choose_tiles(tensor, spatial, group)
    if layout is None:
        return _convolve_samples(call, tensor, weight, bias, rest, transposed, output_padding, groups)
    if transposed:
        return _convolve_transposed(call, tensor, weight, bias, layout, rest, spread(output_padding, spatial), groups)
    window = make_window(weight.shape[2:], *rest)
    sizes = find_output_size(window, layout.shape[2:])
    if sizes is None:
        return NO_RULE
    plan = plan_window(group, layout, weight.shape[0], window, sizes)
    shape = plan.output.get_local_shape(group.rank)
    if 0 in shape and group.halo_depth == 1:
        tensor = to_layout(tensor, layout, group)
        frame = plan.inputs.build(tensor, scratch=True)
        if weight.requires_grad and torch.is_grad_enabled():
            plan.inputs.keep_halo(tensor)
        return call.wrap(frame.new_empty(shape), plan.output)
    settings = (window.stride, plan.padding, window.dilation, False, (0,) * spatial, groups)
    if group.halo_depth != 1:
        return _convolve_wide(call, to_layout(tensor, layout, group), weight, bias, plan, window, settings)
    if isinstance(tensor, SplitTensor) and tensor.layout_on_ranks is layout:
        group.plans[key] = plan, window, settings
    return _convolve_frame(to_layout(tensor, layout, group), weight, bias, plan, window, settings)


def _convolve_frame(
    tensor: SplitTensor, weight: Tensor, bias: Tensor | None, plan: WindowPlan, window: Window, settings: Any
) -> SplitTensor:
    """Convolve a frame. If the weight gets a gradient, the tensor keeps its halo for the backward pass."""
    group, frames = tensor.group, plan.inputs
    if group.overlap == "none" or frames.is_local:
        part = _convolve_pixels(frames.build(tensor, scratch=True), weight, bias, *settings)
    else:
        part = convolve_overlapped(tensor, plan, window, lambda frame: _convolve_pixels(frame, weight, bias, *settings))
    if weight.requires_grad and torch.is_grad_enabled():
        frames.keep_halo(tensor)
    return SplitTensor(part, plan.output, group)


def _convolve_pixels(
    frame: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    """Convolve the pixels of a frame, with oneDNN if they are a float32 volume.

    torch's own choice depends on the number of pixels: it computes small volumes without oneDNN, up to eight times
    slower, and tiles are smaller than the volume.
    """
    is_volume = weight.dim() == 5 and max(weight.shape[2:]) > 1 and frame.numel() > 0
    if is_volume and frame.dtype == torch.float32 and frame.is_cpu and not transposed and _has_onednn():
        return aten.mkldnn_convolution.default(frame, weight, bias, padding, stride, dilation, groups)  # type: ignore[no-any-return]
    return aten.convolution.default(  # type: ignore[no-any-return]
        frame, weight, bias, stride, padding, dilation, transposed, output_padding, groups
    )


def _has_onednn() -> bool:
    return bool(torch._C._has_mkldnn and torch.backends.mkldnn.enabled)


def _convolve_wide(
    call: Call,
    tensor: SplitTensor,
    weight: Tensor,
    bias: Tensor | None,
    plan: WindowPlan,
    window: Window,
    settings: Any,
) -> SplitTensor:
    """Convolve with a halo that serves several windows, or inside of the margin that the tensor has already."""
    group = call.group

    def run_timing_probe() -> None:
        frame = weight.new_zeros(plan.inputs.frame.shape)
        if frame.numel():
            _convolve_pixels(frame, weight, bias, *settings)

    wide = build_wide_frame(tensor, plan, window, run_timing_probe)
    frame = plan.inputs.build(tensor, scratch=True) if wide is None else wide.pixels
    layout = plan.output if wide is None else wide.result
    shape = layout.get_local_shape(group.rank)
    part = frame.new_empty(shape) if 0 in shape else _convolve_pixels(frame, weight, bias, *settings)
    if wide is None:
        return call.wrap(part, plan.output)
    return wrap_wide(part, plan.output, layout, group, wide.exchange, wide.uses)


def _convolve_samples(
    call: Call,
    tensor: SplitTensor,
    weight: Tensor,
    bias: Tensor | None,
    rest: Any,
    transposed: bool,
    extra: Any,
    groups: int,
) -> Any:
    """Convolve whole samples on every rank."""
    local = get_local(tensor)
    part = aten.convolution.default(local, weight, bias, *rest, transposed, extra, groups)
    return call.wrap(part, resize_samples(tensor.layout_on_ranks, part.shape))


def _convolve_transposed(
    call: Call,
    tensor: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    layout: TensorLayout,
    rest: Any,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    group, spatial = call.group, weight.dim() - 2
    plan, window = _plan_transposed(group, layout, weight, rest, output_padding, groups)
    frame = plan.inputs.build(to_layout(tensor, layout, group), scratch=True)
    shape = plan.output.get_local_shape(group.rank)
    if 0 in shape:
        return call.wrap(frame.new_empty(shape), plan.output)
    result = frame.new_zeros(shape)
    if 0 not in frame.shape:
        spread = aten.convolution.default(
            frame, weight, None, window.stride, (0,) * spatial, window.dilation, True, (0,) * spatial, groups
        )
        source: list[Any] = [...]
        place: list[Any] = [...]
        for dim in range(spatial):
            own = plan.output.get_dim_box(group.rank).dims[2 + dim]
            start = plan.inputs.frame.dims[2 + dim].start * window.stride[dim] - window.padding[dim][0]
            common = own & Interval(start, start + spread.shape[2 + dim])
            source.append(slice(common.start - start, common.stop - start))
            place.append(slice(common.start - own.start, common.stop - own.start))
        inner = spread[tuple(source)]
        if inner.shape == result.shape:
            result = inner
        else:
            result[tuple(place)] = inner
    if bias is not None:
        result = result + bias.view(-1, *(1,) * spatial)
    return call.wrap(result.contiguous(), plan.output)


def _plan_transposed(
    group: SplitGroup, layout: TensorLayout, weight: Tensor, rest: Any, output_padding: Sequence[int], groups: int
) -> tuple[WindowPlan, Window]:
    """Plan a transposed convolution: frames of the input clipped to the image, frames of the output gradient padded."""
    stride, padding, dilation = rest
    window = Window.of(
        weight.shape[2:],
        stride=stride,
        dilation=dilation,
        padding=padding,
        transposed=True,
        output_padding=output_padding,
    )
    key = "transposed", layout, window, weight.shape[1] * groups
    if key not in group.plans:
        sizes = window.compute_output_size(layout.shape[2:])
        output = group.get_tiles((layout.shape[0], weight.shape[1] * groups, *sizes), len(sizes))
        image = Box.from_sizes(layout.shape)
        reads, grads = [], []
        for rank in range(group.ranks):
            result, own = output.get_dim_box(rank), layout.get_dim_box(rank)
            read = window.compute_input_box(Box((Interval(0, 1), *result.dims[2:]))).dims[1:]
            box = make_dims_box(layout.shape, read) & image
            reads.append(box if box and result else Box(tuple(Interval(0, 0) for _ in box.dims)))
            touched = [
                Interval(
                    part.start * window.stride[dim] - window.padding[dim][0],
                    (part.stop - 1) * window.stride[dim] - window.padding[dim][0] + window.extent[dim],
                )
                for dim, part in enumerate(own.dims[2:])
            ]
            grads.append(make_dims_box(output.shape, touched if own else [Interval(0, 0)] * len(touched)))
        group.plans[key] = WindowPlan(
            layout=layout,
            output=output,
            padding=(),
            inputs=FramePlan(group, layout, reads),
            grads=FramePlan(group, output, grads),
        )
    return group.plans[key], window


@rule(aten.convolution_backward.default)
def convolve_backward(call: Call) -> Any:
    grad, tensor, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask = call.args
    group, spatial = call.group, weight.dim() - 2
    if tensor.dim() != spatial + 2:
        return NO_RULE
    weight = gather(weight)
    rest = [spread(values, spatial) for values in (stride, padding, dilation)]
    whole_args = (weight, bias_sizes, *rest, transposed, output_padding, groups, mask)
    if stays_whole(tensor, spatial, group):
        results = aten.convolution_backward.default(gather(grad), gather(tensor), *whole_args)
        whole = make_whole(tensor.shape, group.ranks)
        return (None if results[0] is None else call.wrap(results[0], whole), *results[1:])
    layout = choose_tiles(tensor, spatial, group)
    if layout is None:
        return _backward_samples(call, grad, tensor, whole_args)
    if transposed:
        return _transposed_backward(call, grad, tensor, weight, layout, rest, spread(output_padding, spatial), groups)
    window = make_window(weight.shape[2:], *rest)
    sizes = window.compute_output_size(layout.shape[2:])
    plan = plan_window(group, layout, weight.shape[0], window, sizes)
    grads = to_layout(grad, plan.output, group)
    tensor = to_layout(tensor, layout, group)
    zeros = (0,) * spatial
    settings = (window.stride, plan.padding, window.dilation, False, zeros, groups)
    own = get_local(grads)
    grad_input = grad_weight = grad_bias = None

    def run_timing_probe() -> None:
        if own.numel():
            frame = weight.new_zeros(plan.inputs.frame.shape)
            aten.convolution_backward.default(own, frame, weight, None, *settings, (True, False, False))

    is_wide = group.halo_depth != 1
    started = bool(mask[0]) and not is_wide
    if mask[1]:
        frame = build_own_frame(tensor, plan, window, scratch=True) if is_wide else plan.inputs.rebuild(tensor)
    if started:
        plan.grads.start(grads)  # the gradients of the borders travel while the gradient of the weight is computed
    if mask[1]:
        if 0 in own.shape:
            grad_weight = torch.zeros_like(weight)
        else:
            _, grad_weight, _ = aten.convolution_backward.default(
                own, frame, weight, None, *settings, (False, True, False)
            )
    if mask[2]:
        grad_bias = own.sum((0, *range(2, own.dim())), dtype=get_sum_dtype(own))
    if mask[0]:
        wide = build_wide_frame(grads, plan, window, run_timing_probe, saved=tensor) if is_wide else None
        region = plan.grads.build(grads, scratch=True, started=started) if wide is None else wide.pixels
        target = layout if wide is None else wide.result
        outputs = (plan.grads if wide is None else wide.window.frames).frame.dims[2:]
        part_shape = target.get_local_shape(group.rank)
        if 0 in region.shape or 0 in part_shape:
            part = region.new_zeros(part_shape)
        else:
            read = [
                tensor.shape[2 + dim]
                if native
                else (region.shape[2 + dim] - 1) * window.stride[dim] + window.extent[dim]
                for dim, native in enumerate(list_native(plan, window))
            ]
            dummy = _make_dummy((*layout.shape[:2], *read), tensor)
            grad_frame, _, _ = aten.convolution_backward.default(
                region, dummy, weight, None, *settings, (True, False, False)
            )
            part = crop_to_part(
                grad_frame,
                find_frame_origin(outputs, window),
                target,
                group,
                list_native(plan, window),
            )
        if wide is None:
            grad_input = call.wrap_cropped(part, layout)
        else:
            grad_input = wrap_wide(part, layout, target, group, wide.exchange, wide.uses)
    return grad_input, *sum_weights(group, grad_weight, grad_bias, dtype=own.dtype)


def _make_dummy(shape: Sequence[int], like: Tensor) -> Tensor:
    """Return an uninitialised tensor; convolution_backward reads only its shape."""
    memory_format = FORMATS[like.dim()] if is_channels_last(like) else torch.contiguous_format
    return torch.empty(tuple(shape), dtype=like.dtype, device=like.device, memory_format=memory_format)


def _backward_samples(call: Call, grad: Tensor, tensor: SplitTensor, arguments: Any) -> Any:
    weight, *_ = arguments
    mask = arguments[-1]
    local = get_local(tensor)
    layout = tensor.layout_on_ranks
    grads = redistribute(grad, resize_samples(layout, grad.shape), call.group)
    if 0 in local.shape:
        bias = local.new_zeros(grad.shape[1]) if mask[2] else None
        results = (torch.zeros_like(local) if mask[0] else None, torch.zeros_like(weight) if mask[1] else None, bias)
    else:
        results = aten.convolution_backward.default(grads, local, *arguments)
    part = None if results[0] is None else call.wrap(results[0], layout)
    return part, *sum_weights(call.group, *results[1:])


def _transposed_backward(
    call: Call,
    grad: Tensor,
    tensor: Tensor,
    weight: Tensor,
    layout: TensorLayout,
    rest: Any,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    group, spatial, mask = call.group, weight.dim() - 2, call.args[-1]
    plan, window = _plan_transposed(group, layout, weight, rest, output_padding, groups)
    grads = to_layout(grad, plan.output, group)
    local = redistribute(tensor, layout, group)
    frame = plan.grads.build(grads, scratch=True)
    zeros = (0,) * spatial
    grad_bias = get_local(grads).sum((0, *range(2, frame.dim()))) if mask[2] else None
    if 0 in local.shape:
        grad_input, grad_weight = torch.zeros_like(local), torch.zeros_like(weight)
    else:
        grad_input, grad_weight, _ = aten.convolution_backward.default(
            frame,
            local,
            weight,
            None,
            window.stride,
            zeros,
            window.dilation,
            True,
            zeros,
            groups,
            (mask[0], mask[1], False),
        )
    return (
        call.wrap(grad_input, layout) if mask[0] else None,
        *sum_weights(group, grad_weight if mask[1] else None, grad_bias),
    )
