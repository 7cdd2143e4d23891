"""An activation from one placement to another, and its gradient back."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tessera.geometry import HaloPlan, Partition, Window
from tessera.spatial.exchange import exchange_of, halo_exchange
from tessera.spatial.placed import Placed, Settings
from tessera.transport.transport import Transport


class Parts:
    """An activation whole on every rank, and this rank's part of it: `cut` gives the part, `collect` the whole.

    What is whole is the same on every rank, and so is its gradient. The gradient of the whole is therefore collected
    from those of the parts, and that of a part is cut out of that of the whole.
    """

    def __init__(self, placed: Placed, settings: Settings) -> None:
        sizes = placed.sizes if len(placed.sizes) > 1 else (*placed.sizes, 1)  # a plan has a spatial dim
        self._partition = Placed.of(placed.kind, placed.mesh, sizes).partition
        self._box = self._partition.hull(settings.transport.rank)
        self._settings = settings

    def cut(self, whole: Tensor) -> Tensor:
        found: Tensor = _Cut.apply(whole, self)  # type: ignore[no-untyped-call]
        return found

    def collect(self, part: Tensor) -> Tensor:
        found: Tensor = _Collect.apply(part, self)  # type: ignore[no-untyped-call]
        return found

    def cut_out(self, whole: Tensor) -> Tensor:
        """A copy of its own: the whole can be freed."""
        image = whole if whole.dim() > 2 else whole.unsqueeze(-1)
        sample, *spatial = self._box.slices
        part = laid_out(image[(sample, slice(None), *spatial)], self._settings.channels_last, copy=True)
        return part if whole.dim() > 2 else part.reshape(part.shape[:2])

    def put_together(self, part: Tensor) -> Tensor:
        exchange = exchange_of(
            self._plan,
            self._settings.transport,
            channels=part.shape[1],
            dtype=part.dtype,
            channels_last=self._settings.channels_last,
        )
        exchange.start(part.reshape(*part.shape[:2], *self._box.shape[1:]))
        whole = exchange.finish().clone()  # the exchange keeps its buffer for the next round
        return whole if part.dim() > 2 else whole.squeeze(-1)

    @cached_property
    def _plan(self) -> HaloPlan:
        sizes = self._partition.sizes
        everywhere = Partition.everywhere(sizes, self._partition.workers)
        return HaloPlan(self._partition, Window.point(len(sizes) - 1), everywhere)


class Repartition:
    """From one cut to another, each rank sending what others are to have."""

    def __init__(self, source: Partition, target: Partition, settings: Settings) -> None:
        self._plan = HaloPlan(source, Window.point(len(source.sizes) - 1), target)
        self._settings = settings

    def __call__(self, part: Tensor) -> Tensor:
        last = self._settings.channels_last
        found = halo_exchange(part, self._plan, self._settings.transport, channels_last=last)
        return found.clone()  # it may be changed in place, while others still read the exchange's buffer


class Share:
    """A whole value beside tiles that it is spread over, like the gate of a squeeze-and-excitation block.

    Each rank's tile gives it a part of its gradient; the sum is that of the whole.
    """

    def __init__(self, samples: int, transport: Transport) -> None:
        self.samples, self.transport = samples, transport  # a rank with an empty tile has no samples

    def __call__(self, whole: Tensor) -> Tensor:
        found: Tensor = _Share.apply(whole, self)  # type: ignore[no-untyped-call]
        return found


def laid_out(tensor: Tensor, channels_last: bool, *, copy: bool = False) -> Tensor:
    """A tensor in the layout of the network; channels come last only where there are two spatial dims."""
    layout = torch.channels_last if channels_last and tensor.dim() == 4 else torch.contiguous_format
    return tensor.clone(memory_format=layout) if copy else tensor.contiguous(memory_format=layout)


class _Cut(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, whole: Tensor, parts: Parts) -> Tensor:
        ctx.parts = parts
        return parts.cut_out(whole)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.parts.put_together(grad), None


class _Collect(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor, parts: Parts) -> Tensor:
        ctx.parts = parts
        return parts.put_together(part)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.parts.cut_out(grad), None


class _Share(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, whole: Tensor, share: Share) -> Tensor:
        ctx.share, ctx.shape = share, whole.shape
        return whole[: share.samples]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        total = grad.new_zeros(ctx.shape)
        total[: ctx.share.samples] = grad
        ctx.share.transport.all_reduce(total)
        return total, None
