"""One rank's side of a plan, made once: its buffers, its views of them, its connections; then round after round.

The rank's own pixels (`home`) and the frame that its output reads lie in one buffer where they overlap, so that a
round moves borders only. Padding was written when the buffer was made and is never touched again.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from tessera.errors import TesseraError
from tessera.geometry.box import Box
from tessera.geometry.halo import HaloPlan
from tessera.transport.adjoint import Adjoint
from tessera.transport.filling import Filling
from tessera.transport.layout import Layout, index
from tessera.transport.transport import Strip, Transport

WASTE = 2.0  # home and frame share a buffer if it is at most so much larger than both


class Exchange:
    """The halo exchange of one rank, forward (`start`, `finish`) and adjoint (`start_adjoint`, `finish_adjoint`).

    Every rank makes it at the same point of its program. `fill` is what padding holds: 0 for convolutions, minus
    infinity for a maximum.
    """

    @torch.inference_mode(False)  # made for inference, the buffers serve training as well
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
            raise TesseraError(
                "a plan is carried out by its own number of ranks",
                got=f"{transport.size} ranks",
                allowed=f"{len(plan.workers)}",
            )
        # not the plan itself: exchanges are kept for as long as their plan is
        self.mine, self.dtype = plan.workers[transport.rank], dtype
        self._transport, self._layout = transport, Layout(channels, channels_last)
        owned, frame = self.mine.owned, self.mine.frame
        span = owned.hull(frame)
        self.in_place = span.size <= WASTE * (owned.size + frame.size)
        buffer = self._buffer(span if self.in_place else owned, fill)
        self.home = buffer[index(span, owned)] if self.in_place else buffer
        self.frame = buffer[index(span, frame)] if self.in_place else self._buffer(frame, fill)
        self._read = self.frame[index(frame, self.mine.need)]
        self._filling = Filling(self.mine.fills, frame)
        self._fills = self._filling.views(self.frame)
        self._kept = [
            (self.frame[index(frame, move.placed)], self.home[index(owned, move.taken)])
            for move in self.mine.keeps
            if not (self.in_place and move.taken == move.placed)
        ]
        strip = self._layout.strip
        self._connection = transport.connect(
            [Strip(move.target, strip(self.home[index(owned, move.taken)])) for move in self.mine.sends],
            [Strip(move.source, strip(self.frame[index(frame, move.placed)])) for move in self.mine.receives],
        )
        self._adjoint: Adjoint | None = None

    def _buffer(self, box: Box, fill: float) -> Tensor:
        memory = self._transport.empty(self._layout.size(box), self.dtype)
        return self._layout.tensor(memory.fill_(fill), box)

    def settle(self) -> None:
        """Return when `home` may be written again."""
        self._connection.settle()

    def start(self, tile: Tensor | None = None) -> None:
        """Send the borders of this rank's tile; without one, of what has been written to `home`."""
        if tile is not None and not self.holds(tile):
            self._put(tile)
        # the neighbours' pixels come by ways that autograd does not see; whoever saved the frame has to know
        increment_version(self.frame)
        self._connection.start()
        for target, source in self._kept:
            target.copy_(source)

    def finish(self) -> Tensor:
        """What the output reads, all in place. It is this exchange's own buffer: the next round writes over it."""
        self._connection.finish()
        for placed, taken, mirrored in self._fills:
            placed.copy_(taken.flip(mirrored) if mirrored else taken)
        return self._read

    def holds(self, tile: Tensor) -> bool:
        """Whether a tile is `home` itself, and need not be copied there."""
        home = self.home
        return tile.data_ptr() == home.data_ptr() and tile.shape == home.shape and tile.stride() == home.stride()

    def check_tile(self, tile: Tensor) -> None:
        """Refuse what is not a tile of this rank: a copy would spread or round it."""
        if tile.dtype != self.dtype or (tile.shape != self.home.shape and tile.numel() + self.home.numel()):
            raise TesseraError(
                "a tile is what its rank owns",
                got=f"{tuple(tile.shape)} of {tile.dtype}",
                allowed=f"{tuple(self.home.shape)} of {self.dtype}",
            )

    def _put(self, tile: Tensor) -> None:
        self.check_tile(tile)
        self._connection.settle()
        if tile.numel():
            self.home.copy_(tile)

    def start_adjoint(self, grad: Tensor) -> None:
        """Send what the gradient of what was read holds for other ranks' pixels."""
        if self._adjoint is None:
            self._adjoint = Adjoint(self._transport, self.mine, self._layout, self.dtype, self._filling)
        self._adjoint.start(grad)

    def finish_adjoint(self) -> Tensor:
        """The gradient of this rank's own pixels, which is the caller's to keep."""
        assert self._adjoint is not None, "start_adjoint comes first"
        return self._adjoint.finish()
