"""Strips as messages: all that goes to one peer travels in one contiguous buffer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tessera.transport.transport import Strip


class Parcel:
    """A persistent message to or from one peer; a single contiguous strip is its own message, without a copy."""

    def __init__(self, peer: int, strips: Sequence[Tensor]) -> None:
        self.peer = peer
        self._pairs: list[tuple[Tensor, Tensor]] = []
        if len(strips) == 1 and strips[0].is_contiguous():
            self.buffer = strips[0].view(-1)
        else:
            self.buffer = torch.empty(sum(strip.numel() for strip in strips), dtype=strips[0].dtype)
            parts = self.buffer.split([strip.numel() for strip in strips])
            self._pairs = [(part.view(strip.shape), strip) for part, strip in zip(parts, strips, strict=True)]

    @property
    def bytes(self) -> Tensor:
        """The message as bytes: every dtype travels alike."""
        return self.buffer.view(torch.uint8)

    def pack(self) -> None:
        for part, strip in self._pairs:
            part.copy_(strip)

    def unpack(self) -> None:
        for part, strip in self._pairs:
            strip.copy_(part)


def parcels(strips: Sequence[Strip]) -> list[Parcel]:
    """One message per peer, in the order of the peers."""
    by_peer: dict[int, list[Tensor]] = {}
    for strip in strips:
        by_peer.setdefault(strip.peer, []).append(strip.tensor)
    return [Parcel(peer, by_peer[peer]) for peer in sorted(by_peer)]
