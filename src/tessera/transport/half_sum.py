"""A sum over the ranks whose numbers travel as float16: half the bytes of float32."""

from __future__ import annotations

import torch
from torch import Tensor

from tessera.transport.transport import Connection, Strip, Transport


class HalfSum:
    """Replaces numbers by their sums over the ranks, as `Transport.all_reduce` does.

    Every rank adds up one share of the numbers, in float32, and sends the sums to the others: a rank sends
    every number about twice, whatever the number of ranks. Ranks make it and call it alike.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._rounds: dict[int, _Rounds] = {}

    def __call__(self, values: Tensor) -> None:
        count = values.numel()
        if count not in self._rounds:
            self._rounds[count] = _Rounds(self._transport, count)
        self._rounds[count](values.view(-1))


class _Rounds:
    """The two rounds of messages for so many numbers: the parts to who adds them, and the sums to all."""

    def __init__(self, transport: Transport, count: int) -> None:
        ranks, share = transport.size, -(-count // transport.size)
        self._count, self._rank = count, transport.rank
        self._mine, self._parts, self._sums = (
            transport.empty(ranks * share, torch.float16).view(ranks, share) for _ in range(3)
        )
        self._mine.zero_()  # the last share may be short
        self._total = transport.empty(share, torch.float16)
        peers = [peer for peer in range(ranks) if peer != transport.rank]
        self._scatter: Connection = transport.connect(
            [Strip(peer, self._mine[peer]) for peer in peers], [Strip(peer, self._parts[peer]) for peer in peers]
        )
        self._gather: Connection = transport.connect(
            [Strip(peer, self._total) for peer in peers], [Strip(peer, self._sums[peer]) for peer in peers]
        )

    def __call__(self, values: Tensor) -> None:
        self._scatter.settle()
        self._mine.view(-1)[: self._count].copy_(values)
        self._scatter.start()
        self._parts[self._rank].copy_(self._mine[self._rank])
        self._scatter.finish()
        self._gather.settle()
        self._total.copy_(self._parts.sum(0, dtype=torch.float32))
        self._gather.start()
        self._sums[self._rank].copy_(self._total)
        self._gather.finish()
        values.copy_(self._sums.view(-1)[: self._count])
