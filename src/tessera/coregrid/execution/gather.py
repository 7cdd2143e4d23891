"""Copies that gather windows from a haloed shard into a block of the activation matrix (im2col).

The columns of the activation matrix are ordered by (kh, kw, channel). Adjacent pixels of a window row are adjacent in
the haloed shard, so every window row is one copy per output. With horizontal dilation, every pixel is one copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tessera.coregrid.convolution import Convolution, Pair
from tessera.coregrid.device.arena import Buffer, CoreArena
from tessera.coregrid.execution.replay import CallRecorder
from tessera.coregrid.planning.halo import HaloRuns, IntArray, PaddedSticks
from tessera.geometry import Interval

COPY_UNIT_DTYPE = torch.complex128  # any 16-byte dtype; the values are only copied


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A range of block columns that are contiguous in a haloed shard.

    The range begins at channel `channel` of the window pixel `tap` (kh, kw) and at block column `column`.
    """

    tap: Pair
    channel: int
    width: int
    column: int


def split_segments(columns: Interval, channels: int, kernel: Pair, dilation: Pair) -> list[Segment]:
    """Split a range of columns of the activation matrix into segments that are contiguous in the haloed shard.

    >>> [(s.tap, s.width) for s in split_segments(Interval(0, 24), 4, (3, 3), (1, 1))]
    [((0, 0), 12), ((1, 0), 12)]
    """
    segments, at = [], columns.start
    while at < columns.stop:
        tap, channel = divmod(at, channels)
        row, column = divmod(tap, kernel[1])
        last = tap + 1 if dilation[1] > 1 else (row + 1) * kernel[1]
        stop = min(columns.stop, last * channels)
        segments.append(Segment(tap=(row, column), channel=channel, width=stop - at, column=at - columns.start))
        at = stop
    return segments


@dataclass(frozen=True, slots=True)
class SegmentCopy:
    """A segment, and the first stick of the segment in the haloed shard for every output of a core."""

    segment: Segment
    sticks: Tensor
    channels: int

    def copy_rows(self, haloed: Tensor, outputs: Interval, block: Tensor, calls: CallRecorder) -> None:
        """Copy the segment of the outputs `outputs` from a core's haloed shard into the rows of a block."""
        height, channels = haloed.shape
        part = self.segment
        reach = -(-(part.channel + part.width) // channels)  # sticks that a copy spans
        windows = haloed.as_strided(
            (height - reach + 1, part.width), (channels, 1), haloed.storage_offset() + part.channel
        )
        place = block[:, part.column : part.column + part.width]
        calls.call(torch.index_select, windows, 0, self.sticks[outputs.slice], out=place)


def copy_segments(
    arena: CoreArena,
    haloed: Buffer,
    cores: Sequence[int],
    copies: Sequence[SegmentCopy],
    outputs: Interval,
    blocks: Tensor,
    calls: CallRecorder,
) -> None:
    """Copy a segment on several cores in one call, from the haloed shard of every core to `blocks[core, row, column]`.

    Source rows are indexed by address in the concatenated memories, in units of 16 bytes, the alignment of the
    channels.
    """
    part, channels, size = copies[0].segment, copies[0].channels, blocks.element_size()
    unit = COPY_UNIT_DTYPE.itemsize
    addresses = torch.stack(
        [
            (arena.get_address(core, haloed) + part.channel * size) // unit
            + copy.sticks[outputs.slice] * (channels * size // unit)
            for core, copy in zip(cores, copies, strict=True)
        ]
    )
    memory = arena.view_all(COPY_UNIT_DTYPE)
    width = part.width * size // unit
    windows = memory.as_strided((len(memory) - width + 1, width), (1, 1))
    place = blocks[..., part.column : part.column + part.width].view(COPY_UNIT_DTYPE)
    calls.call(torch.ops.aten.index.Tensor_out, windows, [addresses], out=place)


def plan_copies(
    conv: Convolution, halo_runs: HaloRuns, outputs: list[Interval], blocks: list[list[Segment]], channels: int
) -> list[list[list[SegmentCopy]]]:
    """Return lists of segment copies, indexed by the row of cores and the inner block of a shard."""
    sticks = PaddedSticks((conv.batch, conv.height, conv.width), conv.window)
    copies = []
    for run, span in zip(outputs, halo_runs.ranges, strict=True):
        first = sticks.corners[run.slice]
        touched = np.unique(first[:, None] + sticks.taps) if halo_runs.mode == "exact" else None
        place: dict[Pair, Tensor] = {}
        for tap in {part.tap for block in blocks for part in block}:
            place[tap] = torch.from_numpy(_find_positions(first + _compute_offset(conv, sticks, tap), span, touched))
        copies.append([[SegmentCopy(part, place[part.tap], channels) for part in block] for block in blocks])
    return copies


def _compute_offset(conv: Convolution, sticks: PaddedSticks, tap: Pair) -> int:
    return int(tap[0] * conv.dilation[0] * sticks.padded_width + tap[1] * conv.dilation[1])


def _find_positions(sticks: IntArray, span: Interval, touched: IntArray | None) -> IntArray:
    """Return the positions of `sticks` in a haloed shard that holds all of `span`, or only the sticks `touched`."""
    return sticks - span.start if touched is None else np.searchsorted(touched, sticks)
