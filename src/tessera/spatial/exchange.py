"""The halo exchange as a differentiable function: forward the exchange, backward its adjoint."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from tessera.geometry.halo import HaloPlan
from tessera.transport.exchange import Exchange
from tessera.transport.transport import Transport

_exchanges: WeakKeyDictionary[HaloPlan, dict[tuple[object, ...], Exchange]] = WeakKeyDictionary()


def halo_exchange(
    tile: Tensor, plan: HaloPlan, transport: Transport, *, channels_last: bool = False, fill: float = 0.0
) -> Tensor:
    """This rank's frame of the plan: its tile with all that its output reads around it.

    The frame is a persistent buffer: the next exchange of the same plan writes over it, so run backward before.
    """
    exchange = exchange_of(
        plan, transport, channels=tile.shape[1], dtype=tile.dtype, channels_last=channels_last, fill=fill
    )
    found: Tensor = HaloExchange.apply(tile, exchange)
    return found


def exchange_of(
    plan: HaloPlan, transport: Transport, *, channels: int, dtype: torch.dtype, channels_last: bool, fill: float = 0.0
) -> Exchange:
    """The persistent exchange of a plan for tiles of this kind; every rank asks at the same point.

    The layout is said and not read off the tile: a tile of a single pixel has both, and the ranks have to agree.
    """
    known = _exchanges.setdefault(plan, {})
    key = (id(transport), channels, dtype, channels_last, fill)
    if key not in known:
        known[key] = Exchange(transport, plan, channels=channels, dtype=dtype, channels_last=channels_last, fill=fill)
    return known[key]


class HaloExchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tile: Tensor, exchange: Exchange) -> Tensor:
        ctx.exchange = exchange
        exchange.start(tile)
        return exchange.finish().detach()

    @staticmethod
    def backward(ctx: Any, grad_frame: Tensor) -> tuple[Tensor, None]:
        ctx.exchange.start_adjoint(grad_frame)
        return ctx.exchange.finish_adjoint(), None
