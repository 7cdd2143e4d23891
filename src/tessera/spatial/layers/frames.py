"""Exchanges for layers that compute on a frame: the tile with the halo and the padding that the output reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tessera.geometry import Box, HaloPlan
from tessera.spatial.distribution import SpatialSettings
from tessera.spatial.exchange import CountedExchange, get_exchange
from tessera.transport.layout import CHANNELS_LAST_FORMATS, index_box


class FrameExchange:
    """The exchanges of one plan, one for each number of channels and dtype of a tile."""

    def __init__(self, plan: HaloPlan, settings: SpatialSettings, *, fill: float = 0.0) -> None:
        self.plan, self._settings, self._fill = plan, settings, fill
        self.mine = plan.workers[settings.transport.rank]
        self.output = plan.outputs.get_box(settings.transport.rank)
        self.channels_last = settings.channels_last and len(plan.window.kernel) > 1  # undefined for one spatial dim
        self.is_needed = not all(worker.need in worker.owned for worker in plan.workers)

    def exchange(self, tile: Tensor) -> CountedExchange:
        """Return the exchange for tiles with this tile's channels and dtype; all ranks call it at the same point."""
        return get_exchange(
            self.plan,
            self._settings.transport,
            channels=tile.shape[1],
            dtype=tile.dtype,
            channels_last=self.channels_last,
            fill=self._fill,
        )

    def view_input(self, tile: Tensor) -> Tensor:
        """Return the pixels that the output reads, as a view of the tile; only valid if no frame is needed."""
        return tile[index_box(self.mine.owned, self.mine.need)]


def get_tensor_shape(box: Box, channels: int) -> tuple[int, ...]:
    """Return the shape (n, c, spatial dims) of a tensor that spans a box."""
    sample, *spatial = box.shape
    return (sample, channels, *spatial)


def make_unreached_output(shape: Sequence[int], *inputs: Tensor | None) -> Tensor:
    """Return zeros whose backward gives the inputs zero gradients, so that all ranks join the same all-reduces."""
    output: Tensor = _Unreached.apply(tuple(shape), *inputs)  # type: ignore[no-untyped-call]
    return output


class _Unreached(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, shape: tuple[int, ...], *inputs: Tensor | None) -> Tensor:
        ctx.save_for_backward(*inputs)
        like = next(tensor for tensor in inputs if tensor is not None)
        return like.new_zeros(shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return None, *(None if tensor is None else torch.zeros_like(tensor) for tensor in ctx.saved_tensors)


def get_memory_format(tensor: Tensor) -> torch.memory_format:
    """Return the memory format of a tensor: contiguous or channels last; contiguous if both apply."""
    last = CHANNELS_LAST_FORMATS.get(tensor.dim())
    if last is not None and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=last):
        return last
    return torch.contiguous_format
