"""Prepared copies that are repeated every round, and strips packed into one message per peer.

For small strips the overhead of torch's `copy_` exceeds the time of the copy. NumPy has less overhead, and suffices
because both views have the same shape and dtype and no gradient. Contiguous views are copied as plain memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import setitem

import numpy as np
import torch
from torch import Tensor

from tessera.transport.transport import Strip

Copy = Callable[[], object]
# Integer types by size in bytes. NumPy has all of them, but not every float type of torch.
INTEGER_TYPES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}


def prepare_copy(target: Tensor, source: Tensor) -> Copy:
    """Return a callable that copies `source` to `target`, two views of one shape and dtype at fixed addresses."""
    target, source = join_dims(target, source)
    if target.device.type != "cpu":
        return partial(target.copy_, source)
    integers = INTEGER_TYPES[target.itemsize]
    to, from_ = target.view(integers).numpy(), source.view(integers).numpy()
    if to.flags.c_contiguous and from_.flags.c_contiguous:
        return partial(setitem, to.data.cast("B"), slice(None), from_.data.cast("B"))
    return partial(np.copyto, to, from_)


def join_dims(target: Tensor, source: Tensor) -> tuple[Tensor, Tensor]:
    """Return two views of equal shape with dims merged where both are contiguous, so that a copy has long rows.

    >>> frame, tile = torch.zeros(2, 3, 6, 8), torch.zeros(2, 3, 4, 8)
    >>> [list(view.shape) for view in join_dims(frame[:, :, 1:5], tile)]
    [[6, 32], [6, 32]]
    """
    shape, strides = [1], [(1, 1)]
    for size, *both in zip(target.shape, target.stride(), source.stride(), strict=True):
        step = (both[0], both[1])
        if size == 1:
            continue
        if shape[-1] == 1:
            shape[-1], strides[-1] = size, step
        elif strides[-1] == (size * step[0], size * step[1]):
            shape[-1], strides[-1] = shape[-1] * size, step
        else:
            shape.append(size)
            strides.append(step)
    target_strides, source_strides = zip(*strides, strict=True)
    return (
        target.as_strided(shape, target_strides, target.storage_offset()),
        source.as_strided(shape, source_strides, source.storage_offset()),
    )


class PackedMessage:
    """A persistent message to or from one peer. A single contiguous strip is sent without packing.

    `bytes` views the message as bytes. `pack` copies the strips into the message, `unpack` the message into the strips.
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
                self.pack.append(prepare_copy(part.view(strip.shape), strip))
                self.unpack.append(prepare_copy(strip, part.view(strip.shape)))
        self.bytes = buffer.view(torch.uint8)


def pack_by_peer(strips: Sequence[Strip]) -> list[PackedMessage]:
    """Pack strips into one message per peer, in the order of the peers."""
    return [
        PackedMessage(peer, [strip.tensor for strip in strips if strip.peer == peer]) for peer in list_peers(strips)
    ]


def list_peers(strips: Sequence[Strip]) -> list[int]:
    """Return the distinct peers of some strips, sorted."""
    return sorted({strip.peer for strip in strips})
