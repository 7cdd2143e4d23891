"""How the pixels of a box lie in memory, with their channels before them or last."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from tessera.geometry.box import Box

Index = tuple[slice, ...]
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}  # what torch calls channels last, by dims of a tensor


@dataclass(frozen=True, slots=True)
class Layout:
    """Tensors have the dims n, c and the spatial ones, whatever their order in memory."""

    channels: int
    channels_last: bool

    def size(self, box: Box) -> int:
        """How many numbers the pixels of a box are."""
        return box.size * self.channels

    def shape(self, box: Box) -> tuple[int, ...]:
        """The shape of a box's tensor as memory has it."""
        sample, *spatial = box.shape
        return (sample, *spatial, self.channels) if self.channels_last else (sample, self.channels, *spatial)

    def tensor(self, memory: Tensor, box: Box) -> Tensor:
        """One-dimensional memory as the pixels of a box."""
        found = memory.view(self.shape(box))
        return found.movedim(-1, 1) if self.channels_last else found

    def strip(self, view: Tensor) -> Tensor:
        """A view with its dims in the order of memory, so that a message of it is contiguous in that order."""
        return view.movedim(1, -1) if self.channels_last else view

    def strips(self, memory: Tensor, boxes: list[Box]) -> list[Tensor]:
        """Memory as one contiguous strip per box."""
        shapes = [self.shape(box) for box in boxes]
        parts = memory.split_with_sizes([prod(shape) for shape in shapes]) if shapes else ()
        return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    def memory_format(self, dims: int) -> torch.memory_format:
        return FORMATS.get(dims, torch.contiguous_format) if self.channels_last else torch.contiguous_format


def index(span: Box, part: Box) -> Index:
    """Where a part is in a tensor that spans a box."""
    sample, *spatial = part.within(span).slices if part else [slice(0, 0)] * len(part.dims)
    return (sample, slice(None), *spatial)
