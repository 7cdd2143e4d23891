"""Execution of a halo plan on one rank. Buffers, views and connections are prepared once and used many times.

The rank's tile and the frame that its output reads share one buffer where they overlap, so a round moves only
borders. Zero padding is written when the buffer is allocated and never again.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from tessera.errors import TesseraError
from tessera.geometry.box import Box, Interval
from tessera.geometry.halo import Fill, HaloPlan, WorkerPlan
from tessera.transport.layout import MemoryLayout, index_box
from tessera.transport.transport import Strip, Transport

MAX_BUFFER_RATIO = 2.0  # maximum size of a buffer shared by tile and frame, relative to separate buffers


class Exchange:
    """The halo exchange of one rank, forward (`start`, `finish`) and adjoint (`start_adjoint`, `finish_adjoint`).

    All ranks construct it at the same point of their program. `fill` is the value of padding: 0 for convolutions,
    minus infinity for a maximum. `tile_buffer` holds the rank's own pixels, `frame` the pixels
    that its output reads.
    """

    @torch.inference_mode(False)  # buffers allocated during inference must also work for training
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
                "the number of ranks does not match the plan",
                got=f"{transport.size} ranks",
                allowed=f"{len(plan.workers)}",
            )
        # Keep no reference to the plan itself: exchanges are cached for as long as their plan exists.
        self.worker_plan, self.dtype = plan.workers[transport.rank], dtype
        self._transport, self._layout = transport, MemoryLayout(channels, channels_last)
        owned, frame = self.worker_plan.owned, self.worker_plan.frame
        span = owned.hull(frame)
        self.in_place = span.size <= MAX_BUFFER_RATIO * (owned.size + frame.size)
        buffer = self._allocate(span if self.in_place else owned, fill)
        self.tile_buffer = buffer[index_box(span, owned)] if self.in_place else buffer
        self.frame = buffer[index_box(span, frame)] if self.in_place else self._allocate(frame, fill)
        self._read = self.frame[index_box(frame, self.worker_plan.need)]
        self._padding_fills = PaddingFills(self.worker_plan.fills, frame)
        self._fills = self._padding_fills.get_views(self.frame)
        self._kept = [
            (self.frame[index_box(frame, move.target_box)], self.tile_buffer[index_box(owned, move.source_box)])
            for move in self.worker_plan.keeps
            if not (self.in_place and move.source_box == move.target_box)
        ]
        self._connection = transport.connect(
            [
                self._make_strip(move.target, self.tile_buffer, owned, move.source_box)
                for move in self.worker_plan.sends
            ],
            [self._make_strip(move.source, self.frame, frame, move.target_box) for move in self.worker_plan.receives],
        )
        self._adjoint: AdjointExchange | None = None

    def _allocate(self, box: Box, fill: float) -> Tensor:
        memory = self._transport.empty(self._layout.count_values(box), self.dtype)
        return self._layout.view_box(memory.fill_(fill), box)

    def _make_strip(self, peer: int, buffer: Tensor, span: Box, box: Box) -> Strip:
        return Strip(peer, self._layout.to_memory_order(buffer[index_box(span, box)]))

    def wait_until_sent(self) -> None:
        """Wait until peers have read the borders of the last round, so that `tile_buffer` can be overwritten."""
        self._connection.wait_until_sent()

    def start(self, tile: Tensor | None = None) -> None:
        """Start sending the borders of `tile`; if it is None, the borders of the pixels already in `tile_buffer`."""
        if tile is not None and not self.holds_tile(tile):
            self._copy_tile(tile)
        # Received pixels are written without autograd's knowledge; a frame saved for backward must become invalid.
        increment_version(self.frame)
        self._connection.start()
        for target, source in self._kept:
            target.copy_(source)

    def finish(self) -> Tensor:
        """Return the pixels that the output reads. They are a view of `frame`, which the next round overwrites."""
        self._connection.finish()
        for target, source, mirrored in self._fills:
            target.copy_(source.flip(mirrored) if mirrored else source)
        return self._read

    def holds_tile(self, tile: Tensor) -> bool:
        """Return whether a tile is `tile_buffer` itself, so that no copy is needed."""
        buffer = self.tile_buffer
        return tile.data_ptr() == buffer.data_ptr() and tile.shape == buffer.shape and tile.stride() == buffer.stride()

    def check_tile(self, tile: Tensor) -> None:
        """Raise an error for a wrong shape or dtype, because `copy_` would silently broadcast or round the tensor."""
        buffer = self.tile_buffer
        if tile.dtype != self.dtype or (tile.shape != buffer.shape and tile.numel() + buffer.numel()):
            raise TesseraError(
                "wrong shape or dtype for a tile of this rank",
                got=f"{tuple(tile.shape)} of {tile.dtype}",
                allowed=f"{tuple(buffer.shape)} of {self.dtype}",
            )

    def _copy_tile(self, tile: Tensor) -> None:
        self.check_tile(tile)
        self._connection.wait_until_sent()
        if tile.numel():
            self.tile_buffer.copy_(tile)

    def start_adjoint(self, grad: Tensor) -> None:
        """Start the adjoint: send the parts of the input gradient that belong to pixels of other ranks."""
        if self._adjoint is None:
            self._adjoint = AdjointExchange(
                self._transport, self.worker_plan, self._layout, self.dtype, self._padding_fills
            )
        self._adjoint.start(grad)

    def finish_adjoint(self) -> Tensor:
        """Return the gradient of this rank's tile, as a tensor that the caller owns."""
        assert self._adjoint is not None, "start_adjoint comes first"
        return self._adjoint.finish()


class PaddingFills:
    """The padding fills of a frame, applied in order forward and in reverse order backward."""

    def __init__(self, fills: Sequence[Fill], frame: Box) -> None:
        self._fills: list[tuple[int, Interval, Interval, bool]] = []
        for fill in fills:
            start, dim = frame.dims[fill.axis].start, fill.axis + (fill.axis > 0)  # channels are dim 1
            self._fills.append((dim, fill.target - start, fill.source - start, fill.mirrored))

    def __bool__(self) -> bool:
        return bool(self._fills)

    def get_views(self, frame: Tensor) -> list[tuple[Tensor, Tensor, tuple[int, ...]]]:
        """Return each fill as views of a frame: the target, its source, and the dims along which it is mirrored."""
        return [
            (_narrow(frame, dim, target), _narrow(frame, dim, source), (dim,) if mirrored else ())
            for dim, target, source, mirrored in self._fills
        ]

    def fold_gradient(self, grad: Tensor) -> None:
        """Add the gradient of the padding to the gradient of the pixels that it repeats."""
        for dim, target, source, mirrored in reversed(self._fills):
            from_padding = _narrow(grad, dim, target)
            _narrow(grad, dim, source).add_(from_padding.flip(dim) if mirrored else from_padding.sum(dim, keepdim=True))


def _narrow(frame: Tensor, dim: int, part: Interval) -> Tensor:
    return frame.narrow(dim, part.start, len(part))


class AdjointExchange:
    """The adjoint of an exchange: every move is reversed, and received gradients are added instead of copied."""

    def __init__(
        self, transport: Transport, plan: WorkerPlan, layout: MemoryLayout, dtype: torch.dtype, fills: PaddingFills
    ) -> None:
        self._plan, self._layout, self._fills = plan, layout, fills
        out, into = [move.target_box for move in plan.receives], [move.source_box for move in plan.sends]
        memory = transport.empty(sum(map(layout.count_values, out)), dtype)
        leaving = layout.split_strips(memory, out)
        arriving = layout.split_strips(memory.new_empty(sum(map(layout.count_values, into))), into)
        self._connection = transport.connect(
            [Strip(move.source, strip) for move, strip in zip(plan.receives, leaving, strict=True)],
            [Strip(move.target, strip) for move, strip in zip(plan.sends, arriving, strict=True)],
        )
        self._leaving = [(index_box(plan.frame, box), strip) for box, strip in zip(out, leaving, strict=True)]
        self._arriving = [(index_box(plan.owned, box), strip) for box, strip in zip(into, arriving, strict=True)]
        self._kept = [
            (index_box(plan.owned, move.source_box), index_box(plan.frame, move.target_box)) for move in plan.keeps
        ]
        self._keeps_all = len(plan.keeps) == 1 and plan.keeps[0].source_box == plan.owned
        self._grad: Tensor | None = None

    def start(self, grad: Tensor) -> None:
        frame = self._expand_to_frame(grad)
        self._connection.wait_until_sent()
        for index, strip in self._leaving:
            strip.copy_(self._layout.to_memory_order(frame[index]))
        self._connection.start()
        self._grad = self._compute_own_gradient(frame)

    def finish(self) -> Tensor:
        grad, self._grad = self._grad, None
        assert grad is not None, "start comes first"
        self._connection.finish()
        for index, strip in self._arriving:
            self._layout.to_memory_order(grad[index]).add_(strip)
        return grad

    def _expand_to_frame(self, grad: Tensor) -> Tensor:
        """Expand the gradient of the pixels that the output read to the frame, and fold in the padding's gradient."""
        if not self._fills:
            return grad
        plan = self._plan
        frame = self._layout.view_box(grad.new_zeros(self._layout.count_values(plan.frame)), plan.frame)
        frame[index_box(plan.frame, plan.need)].copy_(grad)
        self._fills.fold_gradient(frame)
        return frame

    def _compute_own_gradient(self, frame: Tensor) -> Tensor:
        """Compute the contribution of the rank's own frame to the gradient of its tile."""
        if self._keeps_all:
            ((_, index),) = self._kept
            return frame[index].clone(memory_format=self._layout.get_memory_format(frame.dim()))
        owned = self._plan.owned
        grad = self._layout.view_box(frame.new_zeros(self._layout.count_values(owned)), owned)
        for own_index, frame_index in self._kept:
            grad[own_index].add_(frame[frame_index])
        return grad
