"""A plan prepared for execution: everything that does not depend on the tensor values is computed once.

The halo exchange copies sticks between the memories of the cores and writes the padding. The gathering (im2col) copies
windows from a haloed shard into a block of the activation matrix, whose columns are ordered by (kh, kw, channel).
Adjacent pixels of a window row are adjacent in the haloed shard, so every window row is one copy per output. With
horizontal dilation, every pixel is one copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tessera.coregrid.config import ShardLayout
from tessera.coregrid.convolution import Convolution, Pair
from tessera.coregrid.cores import CoreRangeSet
from tessera.coregrid.device.arena import Buffer, CoreArena
from tessera.coregrid.execution.replay import CallRecorder
from tessera.coregrid.execution.weights import WeightLayout
from tessera.coregrid.formats import float32
from tessera.coregrid.memory_config import (
    BufferType,
    MemoryConfig,
    ShardOrientation,
    ShardSpec,
    TensorMemoryLayout,
)
from tessera.coregrid.planning.halo import HaloRuns, IntArray, PaddedSticks
from tessera.coregrid.planning.ledger import Ledger
from tessera.coregrid.planning.plan import ConvPlan
from tessera.geometry import Interval


@dataclass(frozen=True, slots=True)
class StickCopy:
    """The copy of sticks from core `source` into the range `into` of another core's haloed shard.

    The sticks of one source are in order, with only padding between them. One indexed copy therefore fills the whole
    range; the padding in the range is overwritten afterwards.
    """

    source: int
    into: Interval
    sticks: Tensor
    count: int


@dataclass(frozen=True, slots=True)
class HaloMoves:
    """Halo exchange as indexed copies: size of the haloed shard, padding, and copies for every row of cores."""

    sizes: tuple[int, ...]
    pads: tuple[Tensor, ...]
    copies: tuple[tuple[StickCopy, ...], ...]

    @classmethod
    def of(cls, halo_runs: HaloRuns) -> HaloMoves:
        copies: list[list[StickCopy]] = [[] for _ in halo_runs.sizes]
        for core, runs in enumerate(halo_runs.local):
            if runs:
                copies[core].append(_build_stick_copy(core, runs))
        for (source, core), runs in halo_runs.remote.items():
            copies[core].append(_build_stick_copy(source, runs))
        return cls(halo_runs.sizes, tuple(_list_sticks(runs) for runs in halo_runs.pads), tuple(map(tuple, copies)))

    def exchange(
        self, shard: Callable[[int], Tensor], haloed: Callable[[int], Tensor], padding: float, calls: CallRecorder
    ) -> Ledger:
        """Fill the haloed shards of one column of cores and return the bytes moved."""
        ledger = Ledger()
        for core, size in enumerate(self.sizes):
            if not size:
                continue
            target = haloed(core)
            for copy in self.copies[core]:
                source = shard(copy.source)
                calls.call(torch.index_select, source, 0, copy.sticks, out=target[copy.into.slice])
                sent = copy.count * source.shape[1] * source.element_size()
                ledger += Ledger(local=sent) if copy.source == core else Ledger(remote=sent)
            if len(self.pads[core]):
                calls.call(target.index_fill_, 0, self.pads[core], padding)
        return ledger


def _build_stick_copy(source: int, runs: tuple[tuple[int, int, int], ...]) -> StickCopy:
    first, last = runs[0][1], runs[-1][1] + runs[-1][2]
    sticks = np.zeros(last - first, dtype=np.int64)
    for start, destination, length in runs:
        sticks[destination - first : destination - first + length] = np.arange(start, start + length)
    return StickCopy(source, Interval(first, last), torch.from_numpy(sticks), sum(length for _, _, length in runs))


def _list_sticks(runs: tuple[tuple[int, int], ...]) -> Tensor:
    ranges = [np.arange(destination, destination + length) for destination, length in runs]
    return torch.from_numpy(np.concatenate(ranges) if ranges else np.empty(0, dtype=np.int64))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvProgram:
    """A plan with the memory configs of input and output, and indexed copies for the halo and the activation blocks."""

    plan: ConvPlan
    input: MemoryConfig
    output: MemoryConfig
    weights: WeightLayout
    outputs: list[Interval]
    moves: HaloMoves | None
    gathers: list[list[list[SegmentCopy]]]

    @property
    def is_fixed(self) -> bool:
        """Whether all formats are float32. Such a program converts nothing and is a fixed sequence of torch calls."""
        return self.plan.input_dtype is self.plan.config.dtype is self.plan.config.weights_dtype is float32

    @classmethod
    def of(cls, plan: ConvPlan) -> ConvProgram:
        assert not plan.slices, "slices are programs of their own"
        sharding, conv = plan.sharding, plan.conv
        weights, halo_runs = WeightLayout.of(plan), plan.halo_runs
        outputs = sharding.split_outputs(conv.output_sticks)
        blocks = [
            split_segments(
                Interval(block * weights.block_rows, (block + 1) * weights.block_rows),
                sharding.in_width,
                conv.kernel,
                conv.dilation,
            )
            for block in range(weights.blocks)
        ]
        return cls(
            plan=plan,
            input=_build_memory_config(plan, sharding.columns, (sharding.in_height, sharding.in_width), is_input=True),
            output=_build_memory_config(plan, sharding.out_columns, (sharding.out_height, sharding.out_width)),
            weights=weights,
            outputs=outputs,
            moves=None if halo_runs is None else HaloMoves.of(halo_runs),
            gathers=[] if halo_runs is None else plan_copies(conv, halo_runs, outputs, blocks, sharding.in_width),
        )


def _build_memory_config(
    plan: ConvPlan, columns: int, shape: tuple[int, int], *, is_input: bool = False
) -> MemoryConfig:
    """Build the memory config of shards of `shape` on `columns` cores in every row of cores of a plan."""
    layout, rows = plan.layout, plan.sharding.rows
    orientation = ShardOrientation.ROW_MAJOR
    shards = plan.setup.input_shards
    placed = shards.grid if shards is not None else plan.config.cores
    if placed is not None and (is_input or layout == ShardLayout.HEIGHT):  # cores that the input or the user chose
        cores = placed
        if layout == ShardLayout.BLOCK and plan.config.transpose_shards:
            orientation = ShardOrientation.COL_MAJOR
    elif layout == ShardLayout.BLOCK:
        if plan.config.transpose_shards:
            cores, orientation = CoreRangeSet.of_rectangle(columns, rows), ShardOrientation.COL_MAJOR
        else:
            cores = CoreRangeSet.of_rectangle(rows, columns)
    else:
        cores = CoreRangeSet.of_first(rows * columns, plan.machine.workers if placed is not None else plan.grid)
    return MemoryConfig(TensorMemoryLayout(layout.value), BufferType.L1, ShardSpec(cores, shape, orientation))
