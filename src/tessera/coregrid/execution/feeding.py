"""How activation blocks get to the cores that multiply them: gathered from the haloed shard, tilized, multicast."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from tessera.coregrid.device.arena import Buffer
from tessera.coregrid.device.slab import Slab
from tessera.coregrid.device.storage import Shards
from tessera.coregrid.execution.calls import Calls
from tessera.coregrid.execution.gather import Copies
from tessera.coregrid.execution.program import Program
from tessera.coregrid.execution.workspace import Workspace
from tessera.coregrid.planning.sharding import ShardLayout
from tessera.geometry import Interval


class Feed:
    """Makes the activation blocks of a run, one at a time, and brings them to the cores that multiply them."""

    def __init__(self, program: Program, space: Workspace, source: Shards, haloed: Buffer, calls: Calls) -> None:
        self.calls = calls
        self.program, self.plan, self.space, self.source, self.haloed = program, program.plan, space, source, haloed
        self.arena, self.dtype = space.arena, self.plan.output_dtype
        self.copied = self.sent = 0  # bytes gathered within cores, and multicast
        # Sticks in the format that is multiplied are gathered straight to where they are read.
        self._as_they_are = self.plan.sticks_dtype is self.dtype
        self._shared = self.plan.sharding.columns * self.plan.sharding.out_columns > 1
        self._bytes = self.plan.blocks.act_height * self.plan.blocks.act_width * self.dtype.tile_bytes
        self._places = 2 if self.plan.config.enable_act_double_buffer else 1

    def block(self, row: int, number: int, rows: Interval, receivers: Sequence[range]) -> Slab:
        """An inner block for some of a row's outputs, as the first of the receiving cores has it."""
        shard, within = divmod(number, self.program.weights.blocks)
        core = self.source.core(row, shard)
        if self.program.moves is None:
            made = self._from_input(core, row, shard, rows)
        else:
            size, width = self.program.moves.sizes[row], self.plan.sharding.in_width
            sticks = self.arena.view(core, self.haloed, self.plan.sticks_dtype.torch, (size, width))
            made = self._gathered(core, number, sticks, self.program.gathers[row][within], rows)
            self.copied += len(rows) * self.program.weights.block_rows * sticks.element_size()
        return self._multicast(made, shard, number, receivers) if self._shared else made

    def _gathered(self, core: int, number: int, sticks: Tensor, made: list[Copies], rows: Interval) -> Slab:
        """Windows as rows of a block; in their own format, or rounded to that of the output on the way."""
        space, height, width = self.space, len(rows), self.space.act_width
        by_rows = self.plan.layout == ShardLayout.HEIGHT
        if self._as_they_are:
            name, start = ("act", self._start(number)) if by_rows else ("act tilized", 0)
            block = space.slab(core, name, self.dtype, height, width, start)
            for part in made:
                part.run(sticks, rows, block.typed, self.calls)
            return block
        # The buffer for sticks may hold fewer than the block: they go through it in strips.
        name, given = "act" if by_rows else "act row major", self.plan.sticks_dtype
        most = len(space.buffers[name].place) // given.row_bytes(width)
        real = self.program.weights.block_rows
        for first in range(0, height, most):
            strip = Interval(first, min(height, first + most))
            staged = space.slab(core, name, given, len(strip), width)
            for part in made:
                part.run(sticks, strip + rows.start, staged.typed, self.calls)
            self._tilized(core, strip).store(staged.typed[:, :real].float())
        return self._tilized(core, Interval(0, height))

    def _from_input(self, core: int, row: int, shard: int, rows: Interval) -> Slab:
        """The rows of an input shard, in place if they are in the format that is multiplied."""
        given = self.plan.input_dtype
        lying = Slab(
            arena=self.arena,
            core=core,
            buffer=self.source.buffer,
            dtype=given,
            rows=len(rows),
            columns=self.source.width,
            start=rows.start * given.row_bytes(self.source.width),
        )
        if given is self.dtype:
            return lying
        block = self._tilized(core, Interval(0, len(rows)))
        block.store(lying.load())
        return block

    def _multicast(self, made: Slab, shard: int, number: int, receivers: Sequence[range]) -> Slab:
        """The block on all cores of the row that make output; what the sender gives itself is no move."""
        start, act = self._start(number), self.space.buffers["act"]
        sent = made.raw if made.dtype.is_block else made.typed
        for cores in receivers:
            target = self.arena.across(cores, act, sent.dtype, tuple(sent.shape), start)
            self.calls.do(target.copy_, sent)
        others = self.plan.sharding.out_columns - (shard < self.plan.sharding.out_columns)
        self.sent += others * self._bytes
        return self.space.slab(receivers[0].start, "act", made.dtype, made.rows, made.columns, start)

    def _tilized(self, core: int, rows: Interval) -> Slab:
        start = rows.start * self.dtype.row_bytes(self.space.act_width)
        return self.space.slab(core, "act tilized", self.dtype, len(rows), self.space.act_width, start)

    def _start(self, number: int) -> int:
        """Where in its buffer a block lies: one after the other if it is double buffered."""
        return number % self._places * self._bytes
