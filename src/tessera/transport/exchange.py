"""One rank's side of a plan, made once: its buffers, its views of them, its connections; then round after round.

The rank's own pixels (`home`) and the frame that its output reads lie in one buffer where they overlap, so that a
round moves borders only. Padding was written when the buffer was made and is never touched again.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from tessera.errors import TesseraError
from tessera.geometry.box import Box
from tessera.geometry.halo import Fill, HaloPlan, Move
from tessera.transport.transport import Strip, Transport

WASTE = 2.0  # home and frame share a buffer if it is at most so much larger than both


class Exchange:
    """The halo exchange of one rank, forward (`start`, `finish`) and adjoint (`start_adjoint`, `finish_adjoint`).

    Every rank makes it at the same point of its program. `fill` is what padding holds: 0 for convolutions, minus
    infinity for a maximum.
    """

    def __init__(
        self,
        transport: Transport,
        plan: HaloPlan,
        *,
        channels: int,
        dtype: torch.dtype = torch.float32,
        channels_last: bool = False,
        fill: float = 0.0,
    ) -> None:
        if len(plan.workers) != transport.size:
            got = f"{transport.size} ranks"
            raise TesseraError("a plan is carried out by its own number of ranks", got=got, allowed=len(plan.workers))
        self.plan, self.mine, self._transport = plan, plan.workers[transport.rank], transport
        self._channels, self._last, self.dtype = channels, channels_last, dtype
        span = self.mine.owned.hull(self.mine.frame)
        self.in_place = span.size <= WASTE * (self.mine.owned.size + self.mine.frame.size)
        shared = span if self.in_place else self.mine.owned
        buffer = self._tensor(transport.empty(channels * shared.size, dtype), shared)
        buffer.fill_(fill)
        self.home = self._view(buffer, shared, self.mine.owned)
        if self.in_place:
            self.frame = self._view(buffer, shared, self.mine.frame)
        else:
            self.frame = self._tensor(torch.full((channels * self.mine.frame.size,), fill, dtype=dtype), self.mine.frame)
        self._read = self._view(self.frame, self.mine.frame, self.mine.need)
        self._local = [
            (self._view(self.frame, self.mine.frame, move.placed), self._view(self.home, self.mine.owned, move.taken))
            for move in self.mine.keeps
            if not (self.in_place and move.taken == move.placed)
        ]
        self._connection = transport.connect(
            [Strip(m.target, self._strip(self.home, self.mine.owned, m.taken)) for m in self.mine.sends],
            [Strip(m.source, self._strip(self.frame, self.mine.frame, m.placed)) for m in self.mine.receives],
        )
        self._adjoint: _Adjoint | None = None

    def settle(self) -> None:
        """Return when `home` may be written again."""
        self._connection.settle()

    def start(self, tile: Tensor | None = None) -> None:
        """Send the borders of this rank's tile; without one, of what has been written to `home`."""
        if tile is not None and not self.holds(tile):
            self._connection.settle()
            self.home.copy_(tile)
        self._connection.start()
        for target, source in self._local:
            target.copy_(source)

    def finish(self) -> Tensor:
        """What the output reads, all in place. It is this exchange's own buffer: the next round writes over it."""
        self._connection.finish()
        for fill in self.mine.fills:
            taken, placed = self._fill_views(self.frame, fill)
            placed.copy_(taken.flip(_dim(fill.axis)) if fill.mirrored else taken)
        return self._read

    def holds(self, tile: Tensor) -> bool:
        """Whether a tile is `home` itself, and need not be copied there."""
        return tile.data_ptr() == self.home.data_ptr() and tile.stride() == self.home.stride()

    def start_adjoint(self, grad: Tensor) -> None:
        """Send what the gradient of what was read holds for other ranks' pixels; it must not change until the end."""
        grad_frame = grad
        if self.mine.fills:
            grad_frame = self._tensor(grad.new_zeros(self._channels * self.mine.frame.size), self.mine.frame)
            self._view(grad_frame, self.mine.frame, self.mine.need).copy_(grad)
            for fill in reversed(self.mine.fills):
                taken, placed = self._fill_views(grad_frame, fill)
                dim = _dim(fill.axis)
                taken.add_(placed.flip(dim) if fill.mirrored else placed.sum(dim, keepdim=True))
        if self._adjoint is None:
            self._adjoint = _Adjoint(self._transport, self)
        self._adjoint.start(grad_frame)

    def finish_adjoint(self) -> Tensor:
        """The gradient of this rank's own pixels."""
        assert self._adjoint is not None, "start_adjoint comes first"
        return self._adjoint.finish()

    def _fill_views(self, frame: Tensor, fill: Fill) -> tuple[Tensor, Tensor]:
        """What padding repeats, and the padding."""
        dim, start = _dim(fill.axis), self.mine.frame.dims[fill.axis].start
        taken, placed = (frame.narrow(dim, part.start - start, len(part)) for part in (fill.taken, fill.placed))
        return taken, placed

    def zeros_like_home(self) -> Tensor:
        return self._tensor(torch.zeros(self._channels * self.mine.owned.size, dtype=self.dtype), self.mine.owned)

    def _tensor(self, memory: Tensor, box: Box) -> Tensor:
        """One-dimensional memory as the pixels of a box: n, c and the spatial dims, whatever their order in memory."""
        sample, *spatial = box.shape
        if self._last:
            dims = len(spatial)
            return memory.view(sample, *spatial, self._channels).permute(0, dims + 1, *range(1, dims + 1))
        return memory.view(sample, self._channels, *spatial)

    def _view(self, tensor: Tensor, span: Box, part: Box) -> Tensor:
        """A part of a tensor that spans a box."""
        sample, *spatial = part.within(span).slices if part else [slice(0, 0)] * len(part.dims)
        return tensor[(sample, slice(None), *spatial)]

    def _strip(self, tensor: Tensor, span: Box, part: Box) -> Tensor:
        """The same with its dims in the order of memory, so that a message of it is contiguous in the same order."""
        view = self._view(tensor, span, part)
        return view.movedim(1, -1) if self._last else view

    def strip_buffers(self, moves: Sequence[Move], memory: Tensor) -> list[Tensor]:
        """A piece of memory cut into one contiguous strip per move."""
        shapes = []
        for move in moves:
            sample, *spatial = move.taken.shape
            shapes.append((sample, *spatial, self._channels) if self._last else (sample, self._channels, *spatial))
        parts = memory[: sum(map(prod, shapes))].split([prod(shape) for shape in shapes]) if shapes else ()
        return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


def _dim(axis: int) -> int:
    """The dim of a tensor that is an axis of a box: channels come second."""
    return axis + (axis > 0)


class _Adjoint:
    """Every move of the plan backward: what was copied out is added in."""

    def __init__(self, transport: Transport, exchange: Exchange) -> None:
        self._exchange, mine = exchange, exchange.mine
        out, into = list(mine.receives), list(mine.sends)
        pixels = [sum(move.taken.size for move in moves) * exchange._channels for moves in (out, into)]
        self._out = exchange.strip_buffers(out, transport.empty(pixels[0], exchange.dtype))
        self._in = exchange.strip_buffers(into, torch.empty(pixels[1], dtype=exchange.dtype))
        self._connection = transport.connect(
            [Strip(move.source, strip) for move, strip in zip(out, self._out, strict=True)],
            [Strip(move.target, strip) for move, strip in zip(into, self._in, strict=True)],
        )
        self._grad: Tensor | None = None

    def start(self, grad_frame: Tensor) -> None:
        exchange, mine = self._exchange, self._exchange.mine
        self._connection.settle()
        for move, strip in zip(mine.receives, self._out, strict=True):
            strip.copy_(exchange._strip(grad_frame, mine.frame, move.placed))
        self._connection.start()
        whole = len(mine.keeps) == 1 and mine.keeps[0].taken == mine.owned
        if whole:
            layout = torch.channels_last if exchange._last and grad_frame.dim() == 4 else torch.contiguous_format
            kept = exchange._view(grad_frame, mine.frame, mine.keeps[0].placed)
            self._grad = kept.clone(memory_format=layout)
            return
        self._grad = exchange.zeros_like_home()
        for move in mine.keeps:
            target = exchange._view(self._grad, mine.owned, move.taken)
            target.add_(exchange._view(grad_frame, mine.frame, move.placed))

    def finish(self) -> Tensor:
        exchange, mine, grad = self._exchange, self._exchange.mine, self._grad
        assert grad is not None, "start comes first"
        self._connection.finish()
        for move, strip in zip(mine.sends, self._in, strict=True):
            exchange._strip(grad, mine.owned, move.taken).add_(strip)
        self._grad = None
        return grad
