"""How activation blocks are made: windows gathered from the haloed shard, tilized, and passed on along a row."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from tessera.coregrid.device.arena import Buffer, Cores
from tessera.coregrid.device.slab import Slab
from tessera.coregrid.device.storage import Shards
from tessera.coregrid.execution.calls import Calls
from tessera.coregrid.execution.gangs import Gang
from tessera.coregrid.execution.gather import fetch
from tessera.coregrid.execution.program import Program
from tessera.coregrid.execution.workspace import Workspace
from tessera.coregrid.planning.sharding import ShardLayout
from tessera.geometry import Interval


class Feed:
    """Makes the activation blocks of a run, one at a time."""

    def __init__(self, program: Program, space: Workspace, source: Shards, haloed: Buffer, calls: Calls) -> None:
        self.calls = calls
        self.program, self.plan, self.space, self.source, self.haloed = program, program.plan, space, source, haloed
        self.arena, self.dtype = space.arena, self.plan.output_dtype
        self.copied = self.sent = 0  # bytes gathered within cores, and multicast
        # Sticks in the format that is multiplied are gathered straight to where they are read.
        self._as_they_are = self.plan.sticks_dtype is self.dtype
        self._bytes = self.plan.blocks.act_height * self.plan.blocks.act_width * self.dtype.tile_bytes
        self._places = 2 if self.plan.config.enable_act_double_buffer else 1

    def block(self, gang: Gang, number: int, rows: Interval) -> Slab:
        """An inner block for some of every row's outputs, on the cores that have its channels.

        They pass it on to all cores of their row that make outputs: there is room for it on each, and it is counted
        for each but the sender. But it is read where it was made, since it is the same everywhere.
        """
        shard, across = number // self.program.weights.blocks, self.plan.sharding.out_columns
        self.sent += len(gang) * (across - (shard < across)) * self._bytes
        senders = gang.cores(self.source, Interval(shard, shard + 1))
        if self.program.moves is None:
            return self._from_input(senders, number, rows)
        each = self.program.weights.block_rows * self.plan.sticks_dtype.torch.itemsize
        self.copied += len(gang) * len(rows) * each
        # There is room for a block on every core, but nothing of it is left when the next gang works: all gangs make
        # theirs in the memories of the first, which then stay in this host's cache.
        first = min(senders.first, self.source.core(0, shard))
        return self._gathered(gang, replace(senders, first=first), number, rows)

    def _gathered(self, gang: Gang, cores: Cores, number: int, rows: Interval) -> Slab:
        """Windows as rows of a block; in their own format, or rounded to that of the output on the way."""
        space, height, width = self.space, len(rows), self.space.act_width
        by_rows = self.plan.layout == ShardLayout.HEIGHT
        if self._as_they_are:
            name, start = ("act", self._start(number)) if by_rows else ("act tilized", 0)
            block = space.slab(cores, name, self.dtype, height, width, start)
            self._gather(gang, number, rows, block.typed)
            return block
        # The buffer for sticks may hold fewer than the block: they go through it in strips.
        name, given = "act" if by_rows else "act row major", self.plan.sticks_dtype
        most = len(space.buffers[name].place) // given.row_bytes(width)
        real = self.program.weights.block_rows
        for first in range(0, height, most):
            strip = Interval(first, min(height, first + most))
            staged = space.slab(cores, name, given, len(strip), width).typed
            self._gather(gang, number, strip + rows.start, staged)
            self._tilized(cores, strip).store(staged[..., :real].float())
        return self._tilized(cores, Interval(0, height))

    def _gather(self, gang: Gang, number: int, rows: Interval, into: Tensor) -> None:
        """The windows of some outputs of every row, each core's from its own haloed shard."""
        moves, width = self.program.moves, self.plan.sharding.in_width
        assert moves is not None
        shard, within = divmod(number, self.program.weights.blocks)
        cores = [self.source.core(row, shard) for row in gang.rows]
        if len(gang) > 1:
            for parts in zip(*(self.program.gathers[row][within] for row in gang.rows), strict=True):
                fetch(self.arena, self.haloed, cores, parts, rows, into[:, 0], self.calls)
            return
        (row,) = gang.rows
        sticks = self.arena.view(cores[0], self.haloed, self.plan.sticks_dtype.torch, (moves.sizes[row], width))
        for part in self.program.gathers[row][within]:
            part.run(sticks, rows, into[0, 0], self.calls)

    def channels(self, number: int) -> slice:
        """Those columns of a block that are multiplied: some of an input shard's own if it is read in place."""
        real = self.program.weights.block_rows
        in_place = self.program.moves is None and self.plan.input_dtype is self.dtype
        first = number % self.program.weights.blocks * real if in_place else 0
        return slice(first, first + real)

    def _from_input(self, cores: Cores, number: int, rows: Interval) -> Slab:
        """The rows of an input shard, in place if they are in the format that is multiplied."""
        given = self.plan.input_dtype
        lying = Slab(
            arena=self.arena,
            cores=cores,
            buffer=self.source.buffer,
            dtype=given,
            rows=len(rows),
            columns=self.source.width,
            start=rows.start * given.row_bytes(self.source.width),
        )
        if given is self.dtype:
            return lying
        block, real = self._tilized(cores, Interval(0, len(rows))), self.program.weights.block_rows
        first = number % self.program.weights.blocks * real
        block.store(lying.load()[..., first : first + real])
        return block

    def _tilized(self, cores: Cores, rows: Interval) -> Slab:
        start = rows.start * self.dtype.row_bytes(self.space.act_width)
        return self.space.slab(cores, "act tilized", self.dtype, len(rows), self.space.act_width, start)

    def _start(self, number: int) -> int:
        """Where in its buffer a block lies: one after the other if it is double buffered."""
        return number % self._places * self._bytes
