"""Frames: the part of a tensor that a rank's output reads, with halo from other ranks and padding beyond the edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from tessera.geometry import Box, Interval
from tessera.spatial.tensor.layout import TensorLayout
from tessera.spatial.tensor.split_tensor import SplitGroup, SplitTensor, get_local
from tessera.spatial.tensor.transfer import Targets, index_part

FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


@dataclass(frozen=True, slots=True)
class _Frame:
    """The memory of a frame, and views of it: the padding, and the pixels that a transfer writes."""

    memory: Tensor
    pads: list[Tensor]
    targets: Targets


class FramePlan:
    """The frames of all ranks: `frames` has one box per rank in coordinates of the tensor, which may exceed the tensor.

    The layout must be plain. Elements outside of the tensor get a fill value.
    """

    def __init__(self, group: SplitGroup, layout: TensorLayout, frames: Sequence[Box]) -> None:
        self._group, self._layout = group, layout
        image = Box.from_sizes(layout.shape)
        inside = [frame & image for frame in frames]
        inside = [box if box else Box(tuple(Interval(0, 0) for _ in box.dims)) for box in inside]
        self.frame = frames[group.rank]
        self._inside = inside[group.rank]
        needs = tuple(_drop_dims(box, layout) for box in inside)
        self._transfer = group.get_transfer(layout, needs)
        self.is_padded = self._inside != self.frame
        self.is_local = self._transfer.is_local
        self._is_part = self.is_local and not self.is_padded and self.frame == layout.get_dim_box(group.rank)
        self._pads = [index_part(self.frame, pad) for pad in self.frame.subtract(self._inside)]
        self._place = index_part(self.frame, self._inside) if self._inside else None
        self._dropped = tuple(dim for dim, sizes in enumerate(layout.factors) if not sizes)

    def build(self, tensor: Tensor, fill: float = 0.0, *, scratch: bool = False) -> Tensor:
        """Return this rank's frame; without padding and halo it is a view of the tensor.

        With `scratch`, the frame is valid until the next frame is built; reusing memory avoids page faults.
        """
        if not isinstance(tensor, SplitTensor):
            return self._pad(tensor[self._inside.slices], tensor, fill)
        local = get_local(tensor)
        if self._is_part:
            return local
        group = self._group
        group.log.count_moves(self._transfer.moved, tensor.itemsize)
        shape = self._layout.get_factor_shape(group.rank)
        factors = local if local.shape == shape else local.reshape(shape)
        if self._place is None or not (self.is_padded or scratch):
            return self._pad(self._transfer.run(factors).reshape(self._inside.shape), tensor, fill)
        frame = self._get_scratch(tensor) if scratch else self._view(_allocate(self.frame.shape, tensor, None))
        for pad in frame.pads:
            pad.fill_(fill)
        self._transfer.run_into(factors, frame.targets)
        return frame.memory

    def _get_scratch(self, like: Tensor) -> _Frame:
        """Return scratch memory for this frame. Its views are cached: creating them takes longer than a small copy."""
        key = self, like.dtype, like.device, is_channels_last(like)
        frames = self._group.scratch_frames
        if key not in frames:
            memory = _allocate(self.frame.shape, like, self._group)  # may clear `frames`
            frames[key] = self._view(memory)
        frame: _Frame = frames[key]
        return frame

    def _view(self, memory: Tensor) -> _Frame:
        inside = memory[self._place] if self.is_padded else memory
        inside = inside.squeeze(self._dropped) if self._dropped else inside
        return _Frame(memory, [memory[pad] for pad in self._pads], self._transfer.list_targets(inside))

    def _pad(self, part: Tensor, like: Tensor, fill: float) -> Tensor:
        """Return a part with the padding of the frame."""
        if not self.is_padded:
            return part
        frame = _allocate(self.frame.shape, like, None).fill_(fill)
        if self._place is not None:
            frame[self._place].copy_(part)
        return frame


def is_channels_last(tensor: Tensor) -> bool:
    """Return whether channels are the innermost dim in memory; for a split tensor, equal on all ranks."""
    if tensor.dim() not in FORMATS:
        return False
    strides = tensor.stride()
    if tensor.shape[1] > 1 and tensor.shape[-1] > 1:
        return strides[1] < strides[-1]
    return not tensor.is_contiguous() and tensor.is_contiguous(memory_format=FORMATS[tensor.dim()])


def _allocate(shape: Sequence[int], like: Tensor, group: SplitGroup | None) -> Tensor:
    """Allocate a tensor in the memory format of a given tensor; in the group's scratch memory if there is a group."""
    last = is_channels_last(like)
    order = (shape[0], *shape[2:], shape[1]) if last else tuple(shape)
    if group is None:
        memory = torch.empty(order, dtype=like.dtype, device=like.device)
    else:
        memory = group.get_scratch(prod(shape), like).view(order)
    return memory.movedim(-1, 1) if last else memory


def _drop_dims(box: Box, layout: TensorLayout) -> Box:
    """Return a box of dims as a box of factors: dims of size one that every rank has are no factors."""
    if not box:
        return Box(tuple(Interval(0, 0) for _ in layout.sizes))
    return Box(tuple(interval for interval, sizes in zip(box.dims, layout.factors, strict=True) if sizes))
