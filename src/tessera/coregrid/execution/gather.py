"""Which sticks of a haloed shard make a block of the activation matrix, as copies of consecutive numbers.

The columns of the activation matrix go by (kh, kw, channel). Neighbouring pixels of a window's row are neighbours in
the haloed shard too, so a whole row of the window is one copy per output; with gaps between the pixels, each is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tessera.coregrid.convolution import Convolution, Pair
from tessera.coregrid.device.arena import Arena, Buffer
from tessera.coregrid.execution.calls import Calls
from tessera.coregrid.planning.sticks import Haloing, Ints, Sticks
from tessera.geometry import Interval

UNIT = torch.complex128  # a number of sixteen bytes, which is copied and never looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Columns of a block that lie one after the other in a haloed shard, from a channel of a pixel of the window on."""

    tap: Pair
    channel: int
    width: int
    column: int


def segments(columns: Interval, channels: int, kernel: Pair, dilation: Pair) -> list[Segment]:
    """Columns of the activation matrix, cut where the haloed shard does not go on.

    >>> [(s.tap, s.width) for s in segments(Interval(0, 24), 4, (3, 3), (1, 1))]
    [((0, 0), 12), ((1, 0), 12)]
    """
    found, at = [], columns.start
    while at < columns.stop:
        tap, channel = divmod(at, channels)
        row, column = divmod(tap, kernel[1])
        last = tap + 1 if dilation[1] > 1 else (row + 1) * kernel[1]
        stop = min(columns.stop, last * channels)
        found.append(Segment(tap=(row, column), channel=channel, width=stop - at, column=at - columns.start))
        at = stop
    return found


@dataclass(frozen=True, slots=True)
class Copies:
    """A segment with the sticks of so many channels at which it begins, one for every output of a core."""

    segment: Segment
    sticks: Tensor
    channels: int

    def run(self, haloed: Tensor, outputs: Interval, block: Tensor, calls: Calls) -> None:
        """Copy the segment for some of the core's outputs into their rows of a block."""
        height, channels = haloed.shape
        part = self.segment
        reach = -(-(part.channel + part.width) // channels)  # sticks that a copy goes over
        windows = haloed.as_strided(
            (height - reach + 1, part.width), (channels, 1), haloed.storage_offset() + part.channel
        )
        place = block[:, part.column : part.column + part.width]
        calls.do(torch.index_select, windows, 0, self.sticks[outputs.slice], out=place)


def fetch(
    arena: Arena,
    haloed: Buffer,
    cores: Sequence[int],
    found: Sequence[Copies],
    outputs: Interval,
    blocks: Tensor,
    calls: Calls,
) -> None:
    """Copy a segment of many cores in one call, from each one's haloed shard to its block `(core, row, column)`.

    The rows are found by their addresses in all memories together, in units of sixteen bytes: what a core moves at
    once, and what channels are aligned to.
    """
    part, channels, size = found[0].segment, found[0].channels, blocks.element_size()
    unit = UNIT.itemsize
    addresses = torch.stack(
        [
            (arena.address(core, haloed) + part.channel * size) // unit
            + one.sticks[outputs.slice] * (channels * size // unit)
            for core, one in zip(cores, found, strict=True)
        ]
    )
    memory = arena.as_numbers(UNIT)
    width = part.width * size // unit
    windows = memory.as_strided((len(memory) - width + 1, width), (1, 1))
    place = blocks[..., part.column : part.column + part.width].view(UNIT)
    calls.do(torch.ops.aten.index.Tensor_out, windows, [addresses], out=place)


def copies(
    conv: Convolution, haloing: Haloing, outputs: list[Interval], blocks: list[list[Segment]], channels: int
) -> list[list[list[Copies]]]:
    """For every row of cores and every inner block of a shard, the copies that make it."""
    sticks = Sticks((conv.batch, conv.height, conv.width), conv.window)
    found = []
    for run, span in zip(outputs, haloing.ranges, strict=True):
        first = sticks.trace[run.slice]
        kept = np.unique(first[:, None] + sticks.taps) if haloing.mode == "exact" else None
        place: dict[Pair, Tensor] = {}
        for tap in {part.tap for block in blocks for part in block}:
            place[tap] = torch.from_numpy(_positions(first + _offset(conv, sticks, tap), span, kept))
        found.append([[Copies(part, place[part.tap], channels) for part in block] for block in blocks])
    return found


def _offset(conv: Convolution, sticks: Sticks, tap: Pair) -> int:
    return int(tap[0] * conv.dilation[0] * sticks.padded_width + tap[1] * conv.dilation[1])


def _positions(sticks: Ints, span: Interval, kept: Ints | None) -> Ints:
    """Where padded sticks lie in a haloed shard."""
    return sticks - span.start if kept is None else np.searchsorted(kept, sticks)
