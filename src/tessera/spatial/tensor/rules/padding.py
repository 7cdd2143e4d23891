"""Padding and cropping with a constant."""

from __future__ import annotations

from typing import Any

import torch

from tessera.geometry import Box, Interval
from tessera.spatial.tensor.frames import FramePlan
from tessera.spatial.tensor.layout import make_plain_layout, make_whole
from tessera.spatial.tensor.split_tensor import NO_RULE, Call, get_local, rule

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
