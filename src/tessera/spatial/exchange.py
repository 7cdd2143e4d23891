"""The halo exchange as a differentiable function: the exchange forward, its adjoint backward.

Frames are persistent buffers that the next round of an exchange overwrites. A frame that was saved for backward is
therefore valid for one round only, and refused afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tessera.errors import TesseraError
from tessera.geometry import Box, HaloPlan
from tessera.transport.exchange import Exchange
from tessera.transport.layout import index_box
from tessera.transport.process_groups import get_world_transport
from tessera.transport.transport import Transport


class CountedExchange(Exchange):
    """An exchange that counts its rounds, to detect the use of a frame that a later round has overwritten."""

    rounds = 0

    def start(self, tile: Tensor | None = None) -> None:
        self.rounds += 1
        super().start(tile)

    def start_parts(self, tile: Tensor, parts: Sequence[Box]) -> None:
        """Start the exchange with only some boxes of the tile; the frame then lacks the rank's other pixels."""
        self.check_tile(tile)
        self.wait_until_sent()
        for part in parts:
            place = index_box(self.worker_plan.owned, part)
            self.tile_buffer[place].copy_(tile[place])
        self.start()

    def read(self, part: Box) -> Tensor:
        """Return the part of the frame that spans a box; received pixels in it are valid after `finish`."""
        return self.frame[index_box(self.worker_plan.frame, part)]

    def check(self, number: int) -> None:
        """Raise an error if the frame was overwritten since round `number` (the value of `rounds` after `start`)."""
        if number != self.rounds:
            raise TesseraError(
                "the input of a layer was overwritten before its backward pass",
                got=f"{self.rounds - number} more forward passes",
                do="run the backward pass before the next forward pass",
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
    """Return this rank's frame of the plan: its tile, with the halo and the padding that its output reads.

    Without a `transport`, torch.distributed carries the data; it must be initialised. Padding has the value `fill`. The
    frame is a persistent buffer that the next exchange of the same plan overwrites: run backward before that.
    """
    transport = transport or get_world_transport(len(plan.workers))
    exchange = get_exchange(
        plan, transport, channels=tile.shape[1], dtype=tile.dtype, channels_last=channels_last, fill=fill
    )
    frame: Tensor = HaloExchangeFunction.apply(tile, exchange)  # type: ignore[no-untyped-call]
    return frame


def get_exchange(
    plan: HaloPlan, transport: Transport, *, channels: int, dtype: torch.dtype, channels_last: bool, fill: float = 0.0
) -> CountedExchange:
    """Return the cached exchange of a plan for these channels, dtype and layout; all ranks call this at the same point.

    The layout is a parameter because it cannot be derived from the tile: a tile of one pixel has both layouts, and the
    ranks have to agree.
    """
    cached = _exchanges.setdefault(plan, {})
    key = (id(transport), channels, dtype, channels_last, fill)
    if key not in cached:
        cached[key] = CountedExchange(
            transport, plan, channels=channels, dtype=dtype, channels_last=channels_last, fill=fill
        )
    return cached[key]


class HaloExchangeFunction(torch.autograd.Function):
    """The autograd function of the exchange: tile to frame forward, gradient of frame to gradient of tile backward."""

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
