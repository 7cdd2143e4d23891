"""Transfers: every rank gets a box of a tensor, wherever the elements are. All communication of tiles is a transfer.

A halo exchange, a change of layout and a gather differ only in the boxes that the ranks need. A transfer is planned
once for a layout and the boxes needed, and run with any tensor of that layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from tessera.geometry import Box
from tessera.geometry.owners import OwnerIndex
from tessera.spatial.tensor.layout import TensorLayout
from tessera.transport.transport import Connection, Strip, Transport

Index = tuple[slice, ...]


def index_part(span: Box, part: Box) -> Index:
    """Return the index of the box `part` in a tensor that spans the box `span`."""
    return tuple(
        slice(inner.start - outer.start, inner.stop - outer.start)
        for outer, inner in zip(span.dims, part.dims, strict=True)
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """A box that is sent to a peer, or received from it: its index in this rank's tensor, and its shape."""

    peer: int
    index: Index
    shape: tuple[int, ...]


class Transfer:
    """A transfer of boxes between ranks. `needs` has the box of factors that each rank gets, inside the tensor.

    `moved` is the number of elements that each rank receives from others, `links` that of each (sender, receiver).
    """

    def __init__(self, source: TensorLayout, needs: Sequence[Box], transport: Transport) -> None:
        self._transport = transport
        rank = transport.rank
        own, need = source.boxes[rank], needs[rank]
        self.shape = need.shape
        owners = OwnerIndex([[box] if box else [] for box in source.boxes])
        self.moved = [0] * source.ranks
        self.links: dict[tuple[int, int], int] = {}
        self.is_local = True
        self._sends: list[_Part] = []
        self._receives: list[_Part] = []
        self._keeps: list[tuple[Index, Index]] = []
        for target, wanted in enumerate(needs):
            for holder, box in owners.split_by_owner(wanted, target) if wanted else ():
                if holder == target:
                    if target == rank:
                        self._keeps.append((index_part(need, box), index_part(own, box)))
                    continue
                self.is_local = False
                self.moved[target] += box.size
                self.links[holder, target] = self.links.get((holder, target), 0) + box.size
                if target == rank:
                    self._receives.append(_Part(holder, index_part(need, box), box.shape))
                if holder == rank:
                    self._sends.append(_Part(target, index_part(own, box), box.shape))
        self._is_view = not self._receives and (not need or need in own)
        self._view_index = index_part(own, need) if need else tuple(slice(0, length) for length in need.shape)
        self._lines: dict[torch.dtype, _Line] = {}

    def run(self, tile: Tensor) -> Tensor:
        """Return this rank's box; `tile` is its part of the tensor, one dim per factor. The result may be a view."""
        return self.run_into(tile, None, ())

    def run_into(self, tile: Tensor, frame: Tensor | None, offset: Sequence[int]) -> Tensor:
        """Run the transfer and write this rank's box into `frame`, which begins `offset` elements before the box."""
        if frame is None and self._is_view:
            if not self.is_local:
                self._get_line(tile).send(tile)
            return tile[self._view_index]
        line = None if self.is_local else self._get_line(tile)
        if line is not None:
            line.start(tile)
        target = _make_empty(self.shape, tile) if frame is None else frame
        if frame is not None:
            target = frame[
                tuple(slice(start, start + length) for start, length in zip(offset, self.shape, strict=True))
            ]
        for to, from_ in self._keeps:
            target[to].copy_(tile[from_])
        if line is not None:
            line.finish(target)
        return target if frame is None else frame

    def _get_line(self, tile: Tensor) -> _Line:
        if tile.dtype not in self._lines:
            self._lines[tile.dtype] = _Line(self._transport, self._sends, self._receives, tile.dtype)
        return self._lines[tile.dtype]


class _Line:
    """The buffers and the connection of a transfer for one dtype."""

    @torch.inference_mode(False)  # buffers allocated during inference must also work for training
    def __init__(
        self, transport: Transport, sends: Sequence[_Part], receives: Sequence[_Part], dtype: torch.dtype
    ) -> None:
        carried = torch.uint8 if dtype == torch.bool else dtype
        self._sends = [(part.index, _allocate(transport, part, carried)) for part in sends]
        self._receives = [(part.index, _allocate(transport, part, carried)) for part in receives]
        self._connection: Connection = transport.connect(
            [Strip(part.peer, buffer.view(-1)) for part, (_, buffer) in zip(sends, self._sends, strict=True)],
            [Strip(part.peer, buffer.view(-1)) for part, (_, buffer) in zip(receives, self._receives, strict=True)],
        )

    def start(self, tile: Tensor) -> None:
        self._connection.settle()
        for index, buffer in self._sends:
            buffer.copy_(tile[index])
        self._connection.start()

    def finish(self, target: Tensor) -> None:
        self._connection.finish()
        for index, buffer in self._receives:
            target[index].copy_(buffer)

    def send(self, tile: Tensor) -> None:
        """Take part in a transfer in which this rank receives nothing."""
        self.start(tile)
        self._connection.finish()


def _allocate(transport: Transport, part: _Part, dtype: torch.dtype) -> Tensor:
    return transport.empty(prod(part.shape), dtype).view(part.shape)


def _make_empty(shape: Sequence[int], like: Tensor) -> Tensor:
    """Allocate a tensor whose dims have the order in memory of another tensor, for example channels last."""
    if like.is_contiguous():
        return torch.empty(tuple(shape), dtype=like.dtype, device=like.device)
    strides = like.stride()
    order = sorted(range(len(shape)), key=lambda dim: -strides[dim])
    memory = torch.empty([shape[dim] for dim in order], dtype=like.dtype, device=like.device)
    return memory.permute([order.index(dim) for dim in range(len(shape))])
