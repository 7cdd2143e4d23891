"""The halo exchange as a differentiable function: forward the exchange, backward its adjoint.

Frames are persistent buffers: the next round of an exchange writes over them. Whatever was saved of a frame for
backward is therefore good for one round only, and refused afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.autograd.graph import saved_tensors_hooks

from tessera.errors import TesseraError
from tessera.geometry import Box, HaloPlan
from tessera.transport.distributed import world
from tessera.transport.exchange import Exchange
from tessera.transport.layout import index
from tessera.transport.transport import Transport


class CountedExchange(Exchange):
    """An exchange that counts its rounds, so that a frame that was written over is never taken for an older one."""

    rounds = 0

    def start(self, tile: Tensor | None = None) -> None:
        self.rounds += 1
        super().start(tile)

    def start_parts(self, tile: Tensor, parts: Sequence[Box]) -> None:
        """Start with some of the tile's pixels only: the frame then has no others of this rank's own."""
        self.check_tile(tile)
        self.settle()
        for part in parts:
            place = index(self.mine.owned, part)
            self.home[place].copy_(tile[place])
        self.start()

    def read(self, part: Box) -> Tensor:
        """The part of the frame that spans a box; what comes from elsewhere is in place after `finish`."""
        return self.frame[index(self.mine.frame, part)]

    def check(self, number: int) -> None:
        """Raise if the frame is not of this round any more (as `rounds` was after its `start`)."""
        if number != self.rounds:
            raise TesseraError(
                "a layer's input was written over before its gradient was taken",
                got=f"{self.rounds - number} more forward",
                do="run backward before the next forward",
            )


_exchanges: WeakKeyDictionary[HaloPlan, dict[tuple[object, ...], CountedExchange]] = WeakKeyDictionary()


def halo_exchange(
    tile: Tensor,
    plan: HaloPlan,
    transport: Transport | None = None,
    *,
    channels_last: bool = False,
    fill: float = 0.0,
) -> Tensor:
    """This rank's frame of the plan: its tile with all that its output reads around it.

    Without a `transport`, torch.distributed carries the data; it has to be initialised. Padding holds `fill`.
    The frame is a persistent buffer: the next exchange of the same plan writes over it, so run backward before.
    """
    transport = transport or world(len(plan.workers))
    exchange = exchange_of(
        plan, transport, channels=tile.shape[1], dtype=tile.dtype, channels_last=channels_last, fill=fill
    )
    found: Tensor = HaloExchange.apply(tile, exchange)  # type: ignore[no-untyped-call]
    return found


def exchange_of(
    plan: HaloPlan, transport: Transport, *, channels: int, dtype: torch.dtype, channels_last: bool, fill: float = 0.0
) -> CountedExchange:
    """The persistent exchange of a plan for tiles of this kind; every rank asks at the same point.

    The layout is said and not read off the tile: a tile of a single pixel has both, and the ranks have to agree.
    """
    known = _exchanges.setdefault(plan, {})
    key = (id(transport), channels, dtype, channels_last, fill)
    if key not in known:
        known[key] = CountedExchange(
            transport, plan, channels=channels, dtype=dtype, channels_last=channels_last, fill=fill
        )
    return known[key]


class HaloExchange(torch.autograd.Function):
    """Tile to frame, and the gradient of the frame to that of the tile."""

    @staticmethod
    def forward(ctx: Any, tile: Tensor, exchange: CountedExchange) -> Tensor:
        exchange.start(tile)
        ctx.exchange, ctx.round = exchange, exchange.rounds
        return exchange.finish().detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_frame: Tensor) -> tuple[Tensor, None]:
        ctx.exchange.check(ctx.round)
        ctx.exchange.start_adjoint(grad_frame)
        return ctx.exchange.finish_adjoint(), None


@contextmanager
def frame_of_this_round(exchange: CountedExchange) -> Iterator[None]:
    """Operations within may save the frame for their backward: that refuses to run once the frame was written over."""
    number = exchange.rounds

    def save(tensor: Tensor) -> tuple[Tensor, int]:
        return tensor.detach(), tensor._version

    def load(saved: tuple[Tensor, int]) -> Tensor:
        exchange.check(number)
        tensor, version = saved
        if tensor._version != version:  # torch leaves this to hooks where there are some
            raise TesseraError("a tensor that backward needs was changed in place", do="run backward before that")
        return tensor

    with saved_tensors_hooks(save, load):
        yield
