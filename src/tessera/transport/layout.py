"""Memory layouts of the pixels of a box: channels before the spatial dims, or channels last."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from tessera.geometry.box import Box

Index = tuple[slice, ...]
CHANNELS_LAST_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}  # key: number of tensor dims


@dataclass(frozen=True, slots=True)
class MemoryLayout:
    """The memory layout of tiles. In either layout, the dims of tensors are n, c, and the spatial dims."""

    channels: int
    channels_last: bool

    def count_values(self, box: Box) -> int:
        """Return the number of values in a box, with all channels."""
        return box.size * self.channels

    def get_shape(self, box: Box) -> tuple[int, ...]:
        """Return the shape of a box's tensor in memory order."""
        sample, *spatial = box.shape
        return (sample, *spatial, self.channels) if self.channels_last else (sample, self.channels, *spatial)

    def view_box(self, memory: Tensor, box: Box) -> Tensor:
        """View one-dimensional memory as the pixels of a box."""
        pixels = memory.view(self.get_shape(box))
        return pixels.movedim(-1, 1) if self.channels_last else pixels

    def to_memory_order(self, view: Tensor) -> Tensor:
        """Permute the dims of a view to the order in memory, in which a packed message is contiguous."""
        return view.movedim(1, -1) if self.channels_last else view

    def split_strips(self, memory: Tensor, boxes: list[Box]) -> list[Tensor]:
        """Split memory into one contiguous strip per box."""
        shapes = [self.get_shape(box) for box in boxes]
        parts = memory.split_with_sizes([prod(shape) for shape in shapes]) if shapes else ()
        return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    def get_memory_format(self, dims: int) -> torch.memory_format:
        formats = CHANNELS_LAST_FORMATS if self.channels_last else {}
        return formats.get(dims, torch.contiguous_format)


def index_box(span: Box, part: Box) -> Index:
    """Return the index of the box `part` in a tensor that spans the box `span`."""
    sample, *spatial = part.relative_to(span).slices if part else [slice(0, 0)] * len(part.dims)
    return (sample, slice(None), *spatial)
