"""Layers that compute on their frame: the tile with all that its output reads around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tessera.geometry import Box, HaloPlan
from tessera.spatial.exchange import CountedExchange, HaloExchange, exchange_of, frame_of_this_round
from tessera.spatial.placed import Settings
from tessera.transport.layout import FORMATS, index


class Frames:
    """The frames of one plan, for tiles of any channels and dtype."""

    def __init__(self, plan: HaloPlan, settings: Settings, *, fill: float = 0.0) -> None:
        self.plan, self._settings, self._fill = plan, settings, fill
        self.mine = plan.workers[settings.transport.rank]
        self.output = plan.outputs.hull(settings.transport.rank)
        self.channels_last = settings.channels_last and len(plan.window.kernel) > 1  # one dim has no such layout
        self.is_needed = not all(worker.need in worker.owned for worker in plan.workers)

    def exchange(self, tile: Tensor) -> CountedExchange:
        """The exchange that makes frames of tiles like this one; every rank asks at the same point."""
        return exchange_of(
            self.plan,
            self._settings.transport,
            channels=tile.shape[1],
            dtype=tile.dtype,
            channels_last=self.channels_last,
            fill=self._fill,
        )

    def within_tile(self, tile: Tensor) -> Tensor:
        """What the output reads, as a view of the tile; only if no frame is needed."""
        return tile[index(self.mine.owned, self.mine.need)]

    def apply(self, tile: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        """The function of this tile's frame. It must make something new of it, as the next round writes over it."""
        if not self.is_needed:
            return function(self.within_tile(tile))
        exchange = self.exchange(tile)
        frame: Tensor = HaloExchange.apply(tile, exchange)  # type: ignore[no-untyped-call]
        with frame_of_this_round(exchange):
            return function(frame)


def shape_of(box: Box, channels: int) -> tuple[int, ...]:
    """The shape of a tensor that spans a box."""
    sample, *spatial = box.shape
    return (sample, channels, *spatial)


def unreached(shape: Sequence[int], *inputs: Tensor | None) -> Tensor:
    """Zeros that do not depend on the inputs, which still get gradients: zeros. Ranks then agree on who has some."""
    found: Tensor = _Unreached.apply(tuple(shape), *inputs)  # type: ignore[no-untyped-call]
    return found


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


def layout_of(tensor: Tensor) -> torch.memory_format:
    """How a tensor lies in memory, so that another can lie alike; contiguous where both are the same."""
    last = FORMATS.get(tensor.dim())
    if last is not None and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=last):
        return last
    return torch.contiguous_format
