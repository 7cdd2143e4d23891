"""Transfers: every rank gets a box of a tensor from the ranks that hold it. All communication of tiles is a transfer.

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


Cuts = tuple[tuple[int, int, int], ...]  # (dim, start, length) of the dims of which a part is taken


def find_cuts(span: Box, part: Box) -> Cuts:
    """Return the cuts by which a tensor that spans the box `span` becomes the box `part`."""
    return tuple(
        (dim, inner.start - outer.start, len(inner))
        for dim, (outer, inner) in enumerate(zip(span.dims, part.dims, strict=True))
        if outer != inner
    )


def cut(tensor: Tensor, cuts: Cuts) -> Tensor:
    """Return a part of a tensor as a view; takes half as long as indexing with slices."""
    for dim, start, length in cuts:
        tensor = tensor.narrow(dim, start, length)
    return tensor


@dataclass(frozen=True, slots=True)
class _Part:
    """A box that is sent to a peer, or received from it: how it is cut out of this rank's tensor, and its shape."""

    peer: int
    cuts: Cuts
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Targets:
    """Views of a tensor into which a transfer writes: parts that this rank has itself, and parts from other ranks."""

    kept: list[Tensor]
    received: list[Tensor]


class Transfer:
    """A transfer of boxes between ranks. `needs` has the box of factors that each rank gets, inside the tensor.

    `moved` is the number of elements that each rank receives from others, `links` the number per (sender, receiver).
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
        self._keeps: list[tuple[Cuts, Cuts]] = []  # in the result, and in the tile
        for target, wanted in enumerate(needs):
            for holder, box in owners.split_by_owner(wanted, target) if wanted else ():
                if holder == target:
                    if target == rank:
                        self._keeps.append((find_cuts(need, box), find_cuts(own, box)))
                    continue
                self.is_local = False
                self.moved[target] += box.size
                self.links[holder, target] = self.links.get((holder, target), 0) + box.size
                if target == rank:
                    self._receives.append(_Part(holder, find_cuts(need, box), box.shape))
                if holder == rank:
                    self._sends.append(_Part(target, find_cuts(own, box), box.shape))
        self._is_view = not self._receives and (not need or need in own)
        self._view_index = index_part(own, need) if need else tuple(slice(0, length) for length in need.shape)
        self._lines: dict[torch.dtype, _Line] = {}

    def start(self, tile: Tensor) -> None:
        """Start sending; `tile` is this rank's part of the tensor, one dim per factor. Call `run` or `run_into` later.

        A transfer must end before its next start.
        """
        if not self.is_local:
            self._get_line(tile).start(tile)

    def run(self, tile: Tensor, *, started: bool = False) -> Tensor:
        """Return this rank's box. The result may be a view."""
        if self._is_view:
            if not started:
                self.start(tile)
            if not self.is_local:
                self._lines[tile.dtype].finish([])
            return tile[self._view_index]
        result = _make_empty(self.shape, tile)
        self.run_into(tile, self.list_targets(result), started=started)
        return result

    def list_targets(self, result: Tensor) -> Targets:
        """Return the views of a tensor of this rank's box that `run_into` fills."""
        return Targets([cut(result, to) for to, _ in self._keeps], [cut(result, part.cuts) for part in self._receives])

    def run_into(self, tile: Tensor, targets: Targets, *, started: bool = False) -> None:
        """Run the transfer and write this rank's box."""
        if not started:
            self.start(tile)
        self.copy_own(tile, targets)
        self.finish(tile, targets)

    def copy_own(self, tile: Tensor, targets: Targets) -> None:
        """Write the part of this rank's box that the rank has itself."""
        for target, (_, cuts) in zip(targets.kept, self._keeps, strict=True):
            target.copy_(cut(tile, cuts))

    def finish(self, tile: Tensor, targets: Targets) -> None:
        """Receive and write the part of this rank's box that other ranks have; a transfer was started."""
        if not self.is_local:
            self._lines[tile.dtype].finish(targets.received)

    def close(self) -> None:
        """Release buffers and connections. All ranks close it at the same point; a later run opens new ones."""
        for line in self._lines.values():
            line.close()
        self._lines = {}

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
        self._transport = transport
        carried = torch.uint8 if dtype == torch.bool else dtype
        self._sends = [(part.cuts, _allocate(transport, part, carried)) for part in sends]
        self._receives = [_allocate(transport, part, carried) for part in receives]
        self._connection: Connection = transport.connect(
            [Strip(part.peer, buffer.view(-1)) for part, (_, buffer) in zip(sends, self._sends, strict=True)],
            [Strip(part.peer, buffer.view(-1)) for part, buffer in zip(receives, self._receives, strict=True)],
        )

    def start(self, tile: Tensor) -> None:
        self._connection.wait_until_sent()
        for cuts, buffer in self._sends:
            buffer.copy_(cut(tile, cuts))
        self._connection.start()

    def finish(self, targets: Sequence[Tensor]) -> None:
        self._connection.finish()
        for target, buffer in zip(targets, self._receives, strict=True):
            target.copy_(buffer)

    def close(self) -> None:
        self._connection.close()
        for buffer in (*(buffer for _, buffer in self._sends), *self._receives):
            self._transport.free(buffer)
        self._sends, self._receives = [], []


class Ring:
    """A connection of every rank to the previous and the next rank, for tensors of up to `count` values."""

    @torch.inference_mode(False)
    def __init__(self, transport: Transport, count: int, dtype: torch.dtype) -> None:
        self._transport = transport
        self._sent, self._received = (transport.empty(count, dtype) for _ in range(2))
        rank, size = transport.rank, transport.size
        self._connection: Connection = transport.connect(
            [Strip((rank - 1) % size, self._sent)], [Strip((rank + 1) % size, self._received)]
        )

    def shift(self, tensor: Tensor, shape: Sequence[int]) -> Tensor:
        """Send a tensor to the previous rank, and return the tensor of the next rank, which has the shape `shape`."""
        self._connection.wait_until_sent()
        self._sent[: tensor.numel()].view(tensor.shape).copy_(tensor)
        self._connection.start()
        self._connection.finish()
        return self._received[: prod(shape)].view(tuple(shape)).clone()

    def close(self) -> None:
        """Release the buffers and the connection."""
        self._connection.close()
        for buffer in (self._sent, self._received):
            self._transport.free(buffer)


def _allocate(transport: Transport, part: _Part, dtype: torch.dtype) -> Tensor:
    return transport.empty(prod(part.shape), dtype).view(part.shape)


def _make_empty(shape: Sequence[int], like: Tensor) -> Tensor:
    """Allocate a tensor with the memory format of a given tensor, for example channels last."""
    if like.is_contiguous():
        return torch.empty(tuple(shape), dtype=like.dtype, device=like.device)
    strides = like.stride()
    order = sorted(range(len(shape)), key=lambda dim: -strides[dim])
    memory = torch.empty([shape[dim] for dim in order], dtype=like.dtype, device=like.device)
    return memory.permute([order.index(dim) for dim in range(len(shape))])
