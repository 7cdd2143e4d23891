"""The main loop of a convolution: load weights, build activation blocks, multiply, accumulate, store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from tessera.coregrid.activations import apply_activation
from tessera.coregrid.config import ShardLayout
from tessera.coregrid.device.arena import Buffer, BufferMatrix, StridedCores, split_into_progressions
from tessera.coregrid.device.storage import InterleavedStorage, ShardedStorage
from tessera.coregrid.execution.matmul import MatrixEngine
from tessera.coregrid.execution.program import ConvProgram, copy_segments
from tessera.coregrid.execution.replay import CallRecorder
from tessera.coregrid.execution.workspace import (
    MAX_GROUP_BYTES,
    CoreGroup,
    Workspace,
    group_rows,
    split_into_even_columns,
)
from tessera.coregrid.formats import TILE_SIZE, float32
from tessera.coregrid.planning.ledger import Ledger
from tessera.geometry import Interval


class ActivationFeed:
    """Producer of the activation blocks of one convolution, one block at a time."""

    def __init__(
        self, program: ConvProgram, space: Workspace, source: ShardedStorage, haloed: Buffer, calls: CallRecorder
    ) -> None:
        self.calls = calls
        self.program, self.plan, self.space, self.source, self.haloed = program, program.plan, space, source, haloed
        self.arena, self.dtype = space.arena, self.plan.config.dtype
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
        input_dtype, width = self.plan.input_dtype, self.source.width
        start = rows.start * input_dtype.count_row_bytes(width)
        shard = BufferMatrix(self.arena, cores, self.source.buffer, input_dtype, len(rows), width, start)
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


class BlockLoop:
    """The main loop of one convolution over height blocks, inner blocks and groups of cores."""

    def __init__(
        self,
        program: ConvProgram,
        feed: ActivationFeed,
        output: ShardedStorage,
        weights: InterleavedStorage,
        bias: InterleavedStorage | None,
    ) -> None:
        self.program, self.plan, self.feed, self.space = program, program.plan, feed, feed.space
        self.output, self.weights, self.bias, self.calls = output, weights, bias, feed.calls
        self.engine = MatrixEngine(self.plan.compute, self.plan.config.dtype)
        self.read = self.sent = 0  # bytes read from global memory, and bytes multicast
        self._unpacked_weights: dict[tuple[int, int], torch.Tensor] = {}
        self._registers = torch.empty(0)
        self._keeps_weights = self.plan.layout == ShardLayout.HEIGHT  # the buffer holds all weights
        # if all formats are float32, products are accumulated directly in the memories of the cores
        self._in_place = self.engine.is_float32 and self.plan.config.weights_dtype is float32
        block = self.plan.blocks.act_height * self.plan.blocks.act_width * self.plan.config.dtype.tile_bytes
        self._groups, self._columns = group_rows(program.outputs, output, block), split_into_even_columns(output)
        self._first = CoreGroup(range(1), len(program.outputs[0]), 1)  # the first row of cores

    def run(self) -> Ledger:
        """Compute all outputs, block by block on all cores, and return the bytes moved."""
        blocks = self.plan.blocks
        if self.bias is not None:
            self._load_tiles(self.bias, [0], "bias", 0, sum(len(group) for group in self._groups))
        for height in range(blocks.height_blocks):
            busy = [group for group in self._groups if len(self._get_block_rows(group, height))]
            for number in range(blocks.inner_blocks):
                if height == 0 or not self._keeps_weights:
                    start, tiles = self.space.get_weights_start(number), self.program.weights.list_tile_rows(number)
                    self._load_tiles(self.weights, tiles, "weights", start, sum(map(len, busy)))
                for group in busy:
                    rows = self._get_block_rows(group, height)
                    self._multiply_block(group, self.feed.build_block(group, number, rows), number, rows)
            for group in busy:
                self._finish_rows(group, self._get_block_rows(group, height))
        feed = self.feed
        return Ledger(local=feed.copied, multicast=self.sent + feed.sent, global_read=self.read)

    def _get_block_rows(self, group: CoreGroup, height: int) -> Interval:
        """Return the output rows of a height block on every core of a group; an empty range beyond a short shard."""
        first = height * self.space.act_height
        return Interval(first, min(group.outputs, first + self.space.act_height))

    def _load_tiles(self, storage: InterleavedStorage, tiles: Sequence[int], name: str, start: int, rows: int) -> None:
        """Load the tile rows `tiles` from global memory to the buffer `name` of the cores in the first row.

        On the chip, the first row of cores multicasts the tiles to all `rows` active rows. The model allocates the
        receivers' memory and counts the bytes, but all rows read the copy of the first row.
        """
        dtype, tiles_per_core = storage.matrix.dtype, self.plan.blocks.out_width
        tiles_across = self.output.across * tiles_per_core
        chunk = dtype.tile_bytes // TILE_SIZE  # bytes of one row of a tile
        lane = torch.int64 if chunk % 8 == 0 else torch.int16
        lanes = chunk // lane.itemsize
        for run in split_into_progressions(tiles):
            # a view and not a copy, because a replayed call must read the current contents
            pages = storage.pages.read_pages(Interval(run[0] * tiles_across, (run[-1] + 1) * tiles_across)).view(lane)
            rows_of_tiles = pages.view(-1, self.output.across, tiles_per_core, TILE_SIZE, lanes)[:: run.step]
            block = rows_of_tiles.permute(1, 0, 3, 2, 4)
            for columns in self._columns:
                cores = self._first.get_cores(self.output, columns)
                shape = len(run) * TILE_SIZE, tiles_per_core * lanes
                target = self.space.arena.view_cores(cores, self.space.buffers[name], lane, shape, start)
                self.calls.call(target.view(-1, len(run), TILE_SIZE, tiles_per_core, lanes).copy_, block[columns.slice])
            start += len(run) * tiles_per_core * dtype.tile_bytes
        size = len(tiles) * tiles_across * dtype.tile_bytes
        self.read += size
        self.sent += size * (rows - 1)

    def _multiply_block(self, group: CoreGroup, block: BufferMatrix, number: int, rows: Interval) -> None:
        """Multiply an activation block by the weights of every core, and add the product to the partial sums."""
        if not self._in_place:
            self._multiply_unpacked(group, block, number, rows)
            return
        real, space, first = self.program.weights.block_rows, self.space, number == 0
        left = block.typed[..., self.feed.get_multiplied_columns(number)]
        for columns in self._columns:
            right = space.get_weights(self._first.get_cores(self.output, columns), number).typed[0, :, :real]
            sums = space.get_sums(group.get_cores(self.output, columns), self.output, rows).typed
            if len(columns) == 1:  # all rows of cores use the same weights
                self._multiply_cores(left[:, 0], right.expand(len(group), -1, -1), sums[:, 0], first=first)
                continue
            for row in range(len(group)):  # all columns of cores use the same activations
                self._multiply_cores(left[row].expand(len(columns), -1, -1), right, sums[row], first=first)

    def _multiply_cores(self, left: torch.Tensor, right: torch.Tensor, sums: torch.Tensor, *, first: bool) -> None:
        """Multiply the blocks of several cores, and add the products to `sums` (with `first`, overwrite `sums`).

        Products that fit the host cache are computed in a contiguous buffer first, because torch parallelises a batched
        product with contiguous output, but not a product that is written to the strided memories of the cores.
        """
        if len(sums) > 1 and sums.nbytes <= MAX_GROUP_BYTES * torch.get_num_threads():
            if self._registers.numel() < sums.numel():
                self._registers = sums.new_empty(sums.numel())
            products = self._registers[: sums.numel()].view(sums.shape)
            self.calls.call(torch.bmm, left, right, out=products)
            self.calls.call(sums.copy_ if first else sums.add_, products)
            return
        single = len(sums) == 1  # mm is faster than bmm with a batch of one
        if single:
            left, right, sums = left[0], right[0], sums[0]
        if first:
            self.calls.call(torch.mm if single else torch.bmm, left, right, out=sums)
        else:
            self.calls.call(sums.addmm_ if single else sums.baddbmm_, left, right)

    def _multiply_unpacked(self, group: CoreGroup, block: BufferMatrix, number: int, rows: Interval) -> None:
        """Convert the operands to float32 and multiply them, one column of cores at a time."""
        real = self.program.weights.block_rows
        activations = block.load_values()[..., self.feed.get_multiplied_columns(number)]
        for column in range(self.output.across):
            columns = Interval(column, column + 1)
            if (column, number) not in self._unpacked_weights:
                weights = self.space.get_weights(self._first.get_cores(self.output, columns), number)
                self._unpacked_weights[column, number] = weights.load_values()[0, 0, :real]
            sums = self.space.get_sums(group.get_cores(self.output, columns), self.output, rows)
            unpacked = self._unpacked_weights[column, number]
            self.engine.accumulate(sums, activations, unpacked, first=number == 0)

    def _finish_rows(self, group: CoreGroup, rows: Interval) -> None:
        """Add the bias, apply the activation function, and store output rows in the output format."""
        space, full = self.space, self.engine.is_float32
        for columns in self._columns:
            cores = group.get_cores(self.output, columns)
            values = space.get_sums(cores, self.output, rows).load_values()
            if self.bias is not None:
                self.calls.call(values.add_, space.get_bias(self._first.get_cores(self.output, columns)).load_values())
            if self.plan.config.activation:
                approximate = self.plan.compute.math_approx_mode and not full
                self.calls.call(apply_activation, values, self.plan.config.activation, approximate=approximate)
            if not full or "partials" in space.buffers:
                self.calls.call(space.get_output(cores, self.output, rows).store_values, values)
