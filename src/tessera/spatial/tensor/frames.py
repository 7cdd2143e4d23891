"""Frames: the part of a tensor that a rank's output reads, with halo from other ranks and padding beyond the edges."""

from __future__ import annotations

import weakref
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


@dataclass(frozen=True, slots=True)
class KeptHalo:
    """The received pixels of a tensor's frames, valid while the tensor's count of in-place writes is `version`."""

    frames: FramePlan
    pixels: list[Tensor]
    version: int


class FramePlan:
    """The frames of all ranks: `frames` has one box per rank in coordinates of the tensor, which may exceed the tensor.

    The layout must be plain. Elements outside of the tensor get a fill value.
    """

    def __init__(self, group: SplitGroup, layout: TensorLayout, frames: Sequence[Box]) -> None:
        self._group: SplitGroup = weakref.proxy(group)  # the group keeps its plans, and must not keep itself alive
        self._layout = layout
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

    def start(self, tensor: SplitTensor) -> None:
        """Start the exchange of a frame, which `build` or `finish` ends."""
        if not self._is_part:
            self._transfer.start(self._view_factors(tensor))

    def build(self, tensor: Tensor, fill: float = 0.0, *, scratch: bool = False, started: bool = False) -> Tensor:
        """Return this rank's frame; without padding and halo it is a view of the tensor.

        With `scratch`, the frame is valid until the next frame is built; reusing memory avoids page faults. With
        `started`, the exchange was started before.
        """
        if not isinstance(tensor, SplitTensor):
            return self._pad(tensor[self._inside.slices], tensor, fill)
        if self._is_part:
            return get_local(tensor)
        self._group.log.count_moves(self._transfer.moved, tensor.itemsize)
        factors = self._view_factors(tensor)
        if self._place is None or not (self.is_padded or scratch):
            part = self._transfer.run(factors, started=started)
            return self._pad(part.reshape(self._inside.shape), tensor, fill)
        frame = self._get_scratch(tensor) if scratch else self._view(_allocate(self.frame.shape, tensor, None))
        for pad in frame.pads:
            pad.fill_(fill)
        self._transfer.run_into(factors, frame.targets, started=started)
        return frame.memory

    def begin(self, tensor: SplitTensor) -> Tensor:
        """Return a scratch frame whose halo is still under way; `finish` writes the halo into the frame."""
        self._group.log.count_moves(self._transfer.moved, tensor.itemsize)
        factors, frame = self._view_factors(tensor), self._get_scratch(tensor)
        self._transfer.start(factors)
        for pad in frame.pads:
            pad.fill_(0.0)
        self._transfer.copy_own(factors, frame.targets)
        return frame.memory

    def finish(self, tensor: SplitTensor) -> None:
        """Wait for the halo of a frame that `begin` returned."""
        self._transfer.finish(get_local(tensor), self._get_scratch(tensor).targets)

    def keep_halo(self, tensor: SplitTensor) -> None:
        """Keep the halo of the scratch frame that was just built with its tensor: backward then does not fetch it."""
        if self.is_local or tensor.source is not None:  # equal on all ranks
            return
        received = [] if self._place is None else self._get_scratch(tensor).targets.received
        tensor.halo = KeptHalo(self, [part.clone() for part in received], tensor.writes[0])

    def rebuild(self, tensor: SplitTensor) -> Tensor:
        """Return this rank's frame as a scratch frame, with the halo that the tensor keeps, if it keeps one."""
        kept: KeptHalo | None = tensor.halo
        if kept is None or kept.frames is not self or kept.version != tensor.writes[0]:
            return self.build(tensor, scratch=True)
        if self._place is None:
            return self._pad(get_local(tensor).new_empty(self._inside.shape), tensor, 0.0)
        frame = self._get_scratch(tensor)
        for pad in frame.pads:
            pad.fill_(0.0)
        self._transfer.copy_own(self._view_factors(tensor), frame.targets)
        for target, pixels in zip(frame.targets.received, kept.pixels, strict=True):
            target.copy_(pixels)
        return frame.memory

    def _view_factors(self, tensor: SplitTensor) -> Tensor:
        local, shape = get_local(tensor), self._layout.get_factor_shape(self._group.rank)
        return local if local.shape == shape else local.reshape(shape)

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
