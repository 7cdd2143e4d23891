"""All-reduce of any dtype through libraries that support only some dtypes, and all-reduce in half precision."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tessera.errors import TesseraError
from tessera.transport.transport import Connection, Strip, Transport

# The dtype in which each dtype is summed. 16-bit floats lose less in float32; short integers wrap around as in torch.
SUM_TYPES = {
    torch.float64: torch.float64,
    torch.float32: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float16: torch.float32,
    torch.int64: torch.int64,
    torch.int32: torch.int32,
    torch.int16: torch.int32,
    torch.int8: torch.int32,
    torch.uint8: torch.int32,
}


def sum_in_place(values: Tensor, add: Callable[[Tensor], object]) -> None:
    """All-reduce a tensor of any dtype in place; `add` all-reduces a contiguous tensor of a dtype in `SUM_TYPES`."""
    plain = torch.view_as_real(values.detach()) if values.is_complex() else values.detach()
    if plain.dtype not in SUM_TYPES:
        names = [str(dtype).removeprefix("torch.") for dtype in (*SUM_TYPES, "complex")]
        got = str(values.dtype).removeprefix("torch.")
        raise TesseraError("tensors of this dtype cannot be summed over ranks", got=got, allowed=names)
    total = plain.to(SUM_TYPES[plain.dtype]).contiguous()
    add(total)
    if total is not plain:
        plain.copy_(total)


class HalfPrecisionSum:
    """An alternative to `Transport.all_reduce` that sends float16: half the bytes of float32.

    Each rank sums one share of the values in float32 and sends the sums to the other ranks. A rank therefore sends
    every value about twice, for any number of ranks. All ranks construct it and call it at the same points.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._rounds: dict[int, _HalfPrecisionRounds] = {}

    def __call__(self, values: Tensor) -> None:
        count = values.numel()
        if count not in self._rounds:
            self._rounds[count] = _HalfPrecisionRounds(self._transport, count)
        self._rounds[count](values.view(-1))


class _HalfPrecisionRounds:
    """Buffers for a number of values, and two exchanges: values to the rank that sums them, and sums to all ranks."""

    def __init__(self, transport: Transport, count: int) -> None:
        ranks, share = transport.size, -(-count // transport.size)
        self._count, self._rank = count, transport.rank
        self._own, self._parts, self._sums = (
            transport.empty(ranks * share, torch.float16).view(ranks, share) for _ in range(3)
        )
        self._own.zero_()  # the last share may be shorter
        self._total = transport.empty(share, torch.float16)
        peers = [peer for peer in range(ranks) if peer != transport.rank]
        self._scatter: Connection = transport.connect(
            [Strip(peer, self._own[peer]) for peer in peers], [Strip(peer, self._parts[peer]) for peer in peers]
        )
        self._gather: Connection = transport.connect(
            [Strip(peer, self._total) for peer in peers], [Strip(peer, self._sums[peer]) for peer in peers]
        )

    def __call__(self, values: Tensor) -> None:
        self._scatter.wait_until_sent()
        self._own.view(-1)[: self._count].copy_(values)
        self._scatter.start()
        self._parts[self._rank].copy_(self._own[self._rank])
        self._scatter.finish()
        self._gather.wait_until_sent()
        self._total.copy_(self._parts.sum(0, dtype=torch.float32))
        self._gather.start()
        self._sums[self._rank].copy_(self._total)
        self._gather.finish()
        values.copy_(self._sums.view(-1)[: self._count])
