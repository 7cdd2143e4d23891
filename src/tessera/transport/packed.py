"""Strips as messages: all that goes to one peer travels in one contiguous buffer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tessera.transport.copying import Copy, copy_of
from tessera.transport.transport import Strip


class Parcel:
    """A persistent message to or from one peer; a single contiguous strip is its own message, without a copy.

    `bytes` is the message: every dtype travels alike. `pack` and `unpack` are the copies between it and the strips.
    """

    def __init__(self, peer: int, strips: Sequence[Tensor]) -> None:
        self.peer = peer
        self.pack: list[Copy] = []
        self.unpack: list[Copy] = []
        if len(strips) == 1 and strips[0].is_contiguous():
            buffer = strips[0].view(-1)
        else:
            buffer = strips[0].new_empty(sum(strip.numel() for strip in strips))
            parts = buffer.split_with_sizes([strip.numel() for strip in strips])
            for part, strip in zip(parts, strips, strict=True):
                self.pack.append(copy_of(part.view(strip.shape), strip))
                self.unpack.append(copy_of(strip, part.view(strip.shape)))
        self.bytes = buffer.view(torch.uint8)


def parcels(strips: Sequence[Strip]) -> list[Parcel]:
    """One message per peer, in the order of the peers."""
    return [Parcel(peer, [strip.tensor for strip in strips if strip.peer == peer]) for peer in peers(strips)]


def peers(strips: Sequence[Strip]) -> list[int]:
    """Those whom strips go to or come from."""
    return sorted({strip.peer for strip in strips})
