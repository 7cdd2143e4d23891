"""Padding and cropping with a constant, and padding that repeats pixels: reflection and replication.

A padding that repeats pixels reads pixels near the edge only, so that tiles need a halo at most. Forward, every pixel
of the output is a pixel of the input. Backward, the gradients of repeated pixels are added to the pixel that they
repeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tessera.geometry import Box, Interval
from tessera.spatial.tensor.frames import FORMATS, FramePlan, is_channels_last
from tessera.spatial.tensor.layout import TensorLayout, make_plain_layout, make_whole
from tessera.spatial.tensor.rules.window_plans import make_dims_box, to_layout
from tessera.spatial.tensor.split_tensor import NO_RULE, Call, SplitGroup, SplitTensor, get_local, rule

aten = torch.ops.aten


@rule(aten.constant_pad_nd.default)
def pad_constant(call: Call) -> Any:
    """Pad or crop (negative lengths) with a constant."""
    tensor, lengths, value = call.bind(("self", "pad", "value"), (0,))
    group, dims = call.group, tensor.dim()
    before, after = [0] * dims, [0] * dims
    for number in range(len(lengths) // 2):
        before[dims - 1 - number], after[dims - 1 - number] = lengths[2 * number], lengths[2 * number + 1]
    layout = tensor.layout_on_ranks
    if not layout.is_plain or not layout.is_exclusive:
        if layout.is_whole:
            local = get_local(tensor)
            part = call.func(local, lengths, value)
            return call.wrap(part, make_whole(part.shape, group.ranks))
        return NO_RULE
    shape = tuple(size + before[dim] + after[dim] for dim, size in enumerate(layout.shape))
    if any(size <= 0 for size in shape):
        return NO_RULE
    changed = {dim for dim in range(dims) if before[dim] or after[dim]}
    key = "pad", layout, shape, tuple(before)
    if key not in group.plans:
        if changed & set(layout.split_dims):
            target = group.get_tiles(shape, dims - 2) if dims > 2 else None
        else:
            target = make_plain_layout(
                shape,
                [
                    Box(
                        tuple(
                            Interval(0, shape[dim]) if dim in changed else part
                            for dim, part in enumerate(layout.get_dim_box(rank).dims)
                        )
                    )
                    for rank in range(group.ranks)
                ],
            )
        frames = None
        if target is not None:
            boxes = [target.get_dim_box(rank).shift([-length for length in before]) for rank in range(group.ranks)]
            boxes = [box if box else Box(tuple(Interval(0, 0) for _ in box.dims)) for box in boxes]
            frames = FramePlan(group, layout, boxes)
        group.plans[key] = target, frames
    target, frames = group.plans[key]
    if frames is None:
        return NO_RULE
    part = frames.build(tensor, value)
    shape_here = target.get_local_shape(group.rank)
    if 0 in shape_here:
        part = part.new_empty(shape_here)
    elif part.data_ptr() == get_local(tensor).data_ptr() or not part.is_contiguous():
        part = part.clone()
    return call.wrap(part, target)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatPlan:
    """The plan of a padding that repeats pixels: layouts of input and output, and the frames forward and backward.

    `sources` has, for each spatial dim that pads this rank's part, the place in the input frame of every pixel.
    `kept` is this rank's part without repeated pixels in the frame of gradients; `repeated` has, for each spatial dim,
    the places of repeated pixels in the frame and the places of the pixels that they repeat in the part.
    """

    output: TensorLayout
    inputs: FramePlan
    sources: tuple[Tensor | None, ...]
    grads: FramePlan
    kept: tuple[slice, ...]
    repeated: tuple[tuple[Tensor, Tensor] | None, ...]


def pad_tiles(call: Call) -> Any:
    """Pad by reflection or replication on tiles."""
    tensor, lengths = call.args[:2]
    plan = _find_repeat_plan(call, tensor, lengths)
    if plan is None:
        return NO_RULE
    part = plan.inputs.build(tensor)
    shape = plan.output.get_local_shape(call.group.rank)
    if 0 in shape:
        return call.wrap(part.new_empty(shape), plan.output)
    for dim, places in enumerate(plan.sources, tensor.dim() - len(plan.sources)):
        if places is not None:
            part = part.index_select(dim, places)
    return call.wrap(_copy_in_format(part, tensor), plan.output)


def pad_tiles_backward(call: Call) -> Any:
    """Return the gradient of a padding by reflection or replication on tiles."""
    grad, tensor, lengths = call.args[:3]
    plan = _find_repeat_plan(call, tensor, lengths)
    if plan is None:
        return NO_RULE
    layout = tensor.layout_on_ranks
    part = plan.grads.build(to_layout(grad, plan.output, call.group))
    shape = layout.get_local_shape(call.group.rank)
    if 0 in shape:
        return call.wrap(part.new_empty(shape), layout)
    lead = tensor.dim() - len(plan.kept)
    for dim, (kept, repeated) in enumerate(zip(plan.kept, plan.repeated, strict=True), lead):
        own = part.narrow(dim, kept.start, kept.stop - kept.start)
        if repeated is not None:
            places, targets = repeated
            own = own.index_add(dim, targets, part.index_select(dim, places))
        part = own
    return call.wrap(_copy_in_format(part, grad), layout)


def _copy_in_format(part: Tensor, like: Tensor) -> Tensor:
    """Return a copy in the memory format of a given tensor, which is equal on all ranks."""
    memory_format = FORMATS[like.dim()] if is_channels_last(like) else torch.contiguous_format
    return part.clone(memory_format=memory_format)


def _find_repeat_plan(call: Call, tensor: Any, lengths: Sequence[int]) -> RepeatPlan | None:
    """Return the plan of a padding; None if the tensor is not on tiles, or the padding crops or is too long."""
    spatial = len(lengths) // 2
    if not isinstance(tensor, SplitTensor) or tensor.dim() != spatial + 2 or min(lengths) < 0:
        return None
    layout, group = tensor.layout_on_ranks, call.group
    is_reflected = "reflection" in str(call.func)
    key = "repeat", layout, tuple(lengths), is_reflected, tensor.device
    if key not in group.plans:
        is_tiles = layout.is_plain and layout.is_exclusive and min(layout.split_dims, default=0) > 1
        maps = [
            _list_sources(size, lengths[2 * number], lengths[2 * number + 1], is_reflected)
            for number, size in enumerate(reversed(layout.shape[2:]))
        ][::-1]
        is_valid = is_tiles and all(
            0 <= min(places) <= max(places) < n for places, n in zip(maps, layout.shape[2:], strict=True)
        )
        group.plans[key] = _plan_repeat(group, layout, maps, lengths[::2][::-1], tensor.device) if is_valid else None
    plan: RepeatPlan | None = group.plans[key]
    return plan


def _list_sources(size: int, before: int, after: int, is_reflected: bool) -> list[int]:
    """Return the input pixel of every output pixel along a dim.

    >>> _list_sources(4, 2, 1, True), _list_sources(4, 2, 1, False)
    ([2, 1, 0, 1, 2, 3, 2], [0, 0, 0, 1, 2, 3, 3])
    """
    if is_reflected:
        return [abs(at) if at < size else 2 * (size - 1) - at for at in range(-before, size + after)]
    return [min(max(at, 0), size - 1) for at in range(-before, size + after)]


def _plan_repeat(
    group: SplitGroup,
    layout: TensorLayout,
    maps: Sequence[Sequence[int]],
    before: Sequence[int],
    device: torch.device,
) -> RepeatPlan:
    output = group.get_tiles((*layout.shape[:2], *map(len, maps)), len(maps))
    input_boxes, grad_boxes = [], []
    for rank in range(group.ranks):
        own, result = layout.get_dim_box(rank), output.get_dim_box(rank)
        read, touched = [], []
        for places, part, target in zip(maps, own.dims[2:], result.dims[2:], strict=True):
            sources = places[target.start : target.stop]
            read.append(Interval(min(sources), max(sources) + 1) if result else Interval(0, 0))
            readers = [at for at, source in enumerate(places) if part.start <= source < part.stop]
            touched.append(Interval(min(readers), max(readers) + 1) if own else Interval(0, 0))
        input_boxes.append(make_dims_box(layout.shape, read))
        grad_boxes.append(make_dims_box(output.shape, touched))
    own, result = layout.get_dim_box(group.rank), output.get_dim_box(group.rank)
    sources_here: list[Tensor | None] = []
    kept: list[slice] = []
    repeated: list[tuple[Tensor, Tensor] | None] = []
    for number, places in enumerate(maps):
        part, target = own.dims[2 + number], result.dims[2 + number]
        frame, grads = input_boxes[group.rank].dims[2 + number], grad_boxes[group.rank].dims[2 + number]
        here = [source - frame.start for source in places[target.start : target.stop]]
        sources_here.append(None if here == list(range(len(frame))) else torch.tensor(here, device=device))
        start = part.start + before[number] - grads.start
        kept.append(slice(start, start + len(part)))
        extra = [
            (at - grads.start, places[at] - part.start)
            for at in range(grads.start, grads.stop)
            if part.start <= places[at] < part.stop and places[at] != at - before[number]
        ]
        both = torch.tensor(extra, device=device).T if extra else None
        repeated.append(None if both is None else (both[0], both[1]))
    return RepeatPlan(
        output=output,
        inputs=FramePlan(group, layout, input_boxes),
        sources=tuple(sources_here),
        grads=FramePlan(group, output, grad_boxes),
        kept=tuple(kept),
        repeated=tuple(repeated),
    )
