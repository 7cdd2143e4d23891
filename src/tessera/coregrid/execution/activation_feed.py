"""Build activation blocks: gather windows from the haloed shards, tilize them, multicast them along a row of cores."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from tessera.coregrid.config import ShardLayout
from tessera.coregrid.device.arena import Buffer, StridedCores
from tessera.coregrid.device.buffer_matrix import BufferMatrix
from tessera.coregrid.device.storage import ShardedStorage
from tessera.coregrid.execution.core_groups import CoreGroup
from tessera.coregrid.execution.gather import copy_segments
from tessera.coregrid.execution.program import ConvProgram
from tessera.coregrid.execution.replay import CallRecorder
from tessera.coregrid.execution.workspace import Workspace
from tessera.geometry import Interval


class ActivationFeed:
    """Producer of the activation blocks of one convolution, one block at a time."""

    def __init__(
        self, program: ConvProgram, space: Workspace, source: ShardedStorage, haloed: Buffer, calls: CallRecorder
    ) -> None:
        self.calls = calls
        self.program, self.plan, self.space, self.source, self.haloed = program, program.plan, space, source, haloed
        self.arena, self.dtype = space.arena, self.plan.output_dtype
        self.copied = self.sent = 0  # bytes gathered within cores, and bytes multicast
        # Sticks that need no conversion are gathered directly into the multiplied block.
        self._in_place = self.plan.sticks_dtype is self.dtype
        self._bytes = self.plan.blocks.act_height * self.plan.blocks.act_width * self.dtype.tile_bytes
        self._slots = 2 if self.plan.config.enable_act_double_buffer else 1

    def build_block(self, group: CoreGroup, number: int, rows: Interval) -> BufferMatrix:
        """Build inner block `number` for output rows `rows` of a group, on the cores that hold the block's channels.

        On the chip, these cores (the senders) multicast the block to all cores of their row that compute outputs. The
        model allocates the receivers' memory and counts the bytes, but all cores read the sender's copy.
        """
        shard, across = number // self.program.weights.blocks, self.plan.sharding.out_columns
        self.sent += len(group) * (across - (shard < across)) * self._bytes
        senders = group.get_cores(self.source, Interval(shard, shard + 1))
        if self.program.moves is None:
            return self._get_input_block(senders, number, rows)
        row_bytes = self.program.weights.block_rows * self.plan.sticks_dtype.torch.itemsize
        self.copied += len(group) * len(rows) * row_bytes
        # A block is no longer needed after its group is multiplied. All groups therefore reuse the memory of the first
        # group, which stays in the cache of this host.
        first = min(senders.first, self.source.get_core(0, shard))
        return self._gather_block(group, replace(senders, first=first), number, rows)

    def _gather_block(self, group: CoreGroup, cores: StridedCores, number: int, rows: Interval) -> BufferMatrix:
        """Gather windows as rows of an activation block, and convert them to the output format if necessary."""
        space, height, width = self.space, len(rows), self.space.act_width
        by_rows = self.plan.layout == ShardLayout.HEIGHT
        if self._in_place:
            name, start = ("act", self._get_slot_offset(number)) if by_rows else ("act tilized", 0)
            block = space.get_matrix(cores, name, self.dtype, height, width, start)
            self._gather_windows(group, number, rows, block.typed)
            return block
        # The buffer for sticks may be smaller than the block: gather and convert the block strip by strip.
        name, sticks_dtype = "act" if by_rows else "act row major", self.plan.sticks_dtype
        most = len(space.buffers[name].place) // sticks_dtype.count_row_bytes(width)
        real = self.program.weights.block_rows
        for first in range(0, height, most):
            strip = Interval(first, min(height, first + most))
            staged = space.get_matrix(cores, name, sticks_dtype, len(strip), width).typed
            self._gather_windows(group, number, strip + rows.start, staged)
            self._get_tilized_block(cores, strip).store_values(staged[..., :real].float())
        return self._get_tilized_block(cores, Interval(0, height))

    def _gather_windows(self, group: CoreGroup, number: int, rows: Interval, into: Tensor) -> None:
        """Gather the windows of output rows `rows` into a block. Every core reads its own haloed shard."""
        moves, width = self.program.moves, self.plan.sharding.in_width
        assert moves is not None
        shard, within = divmod(number, self.program.weights.blocks)
        cores = [self.source.get_core(row, shard) for row in group.rows]
        if len(group) > 1:
            for parts in zip(*(self.program.gathers[row][within] for row in group.rows), strict=True):
                copy_segments(self.arena, self.haloed, cores, parts, rows, into[:, 0], self.calls)
            return
        (row,) = group.rows
        sticks = self.arena.view(cores[0], self.haloed, self.plan.sticks_dtype.torch, (moves.sizes[row], width))
        for part in self.program.gathers[row][within]:
            part.copy_rows(sticks, rows, into[0, 0], self.calls)

    def get_multiplied_columns(self, number: int) -> slice:
        """Return the columns of block `number` that are multiplied. An input shard read in place has more columns."""
        real = self.program.weights.block_rows
        in_place = self.program.moves is None and self.plan.input_dtype is self.dtype
        first = number % self.program.weights.blocks * real if in_place else 0
        return slice(first, first + real)

    def _get_input_block(self, cores: StridedCores, number: int, rows: Interval) -> BufferMatrix:
        """Return rows of the input shards: a view if the input has the output format, else a converted copy."""
        input_dtype = self.plan.input_dtype
        shard = BufferMatrix(
            arena=self.arena,
            cores=cores,
            buffer=self.source.buffer,
            dtype=input_dtype,
            rows=len(rows),
            columns=self.source.width,
            start=rows.start * input_dtype.count_row_bytes(self.source.width),
        )
        if input_dtype is self.dtype:
            return shard
        block, real = self._get_tilized_block(cores, Interval(0, len(rows))), self.program.weights.block_rows
        first = number % self.program.weights.blocks * real
        block.store_values(shard.load_values()[..., first : first + real])
        return block

    def _get_tilized_block(self, cores: StridedCores, rows: Interval) -> BufferMatrix:
        start = rows.start * self.dtype.count_row_bytes(self.space.act_width)
        return self.space.get_matrix(cores, "act tilized", self.dtype, len(rows), self.space.act_width, start)

    def _get_slot_offset(self, number: int) -> int:
        """Return the byte offset of a block in its buffer. With double buffering, blocks alternate between 2 slots."""
        return number % self._slots * self._bytes
