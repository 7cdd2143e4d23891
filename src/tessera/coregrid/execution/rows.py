"""The work of the cores, gang of them after gang: weights and activations brought in, multiplied, added up, stored."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tessera.coregrid.device.arena import progressions
from tessera.coregrid.device.slab import Slab
from tessera.coregrid.device.storage import Interleaved, Shards
from tessera.coregrid.execution.activations import activate
from tessera.coregrid.execution.feeding import Feed
from tessera.coregrid.execution.gangs import CACHE, Gang, even_columns, gangs
from tessera.coregrid.execution.matmul import Arithmetic
from tessera.coregrid.execution.program import Program
from tessera.coregrid.formats import TILE, float32
from tessera.coregrid.planning.ledger import Ledger
from tessera.coregrid.planning.sharding import ShardLayout
from tessera.geometry import Interval


class Rows:
    """Goes through the rows of cores, their blocks of outputs, and the inner blocks of each."""

    def __init__(
        self, program: Program, feed: Feed, output: Shards, weights: Interleaved, bias: Interleaved | None
    ) -> None:
        self.program, self.plan, self.feed, self.space = program, program.plan, feed, feed.space
        self.output, self.weights, self.bias, self.calls = output, weights, bias, feed.calls
        self.arithmetic = Arithmetic(self.plan.compute, self.plan.output_dtype)
        self.read = self.sent = 0  # bytes from global memory, and passed on from core to core
        self._known_weights: dict[tuple[int, int], torch.Tensor] = {}
        self._registers = torch.empty(0)
        self._stays = self.plan.layout == ShardLayout.HEIGHT  # all weights at once, if they are needed again
        # numbers that are multiplied and added up where they lie
        self._as_they_are = self.arithmetic.is_full and self.plan.weights_dtype is float32
        block = self.plan.blocks.act_height * self.plan.blocks.act_width * self.plan.output_dtype.tile_bytes
        self._gangs, self._columns = gangs(program.outputs, output, block), even_columns(output)
        self._first = Gang(range(1), len(program.outputs[0]), 1)  # the first row of cores

    def run(self) -> Ledger:
        """Make all outputs, and say what moved: block after block, each on all cores."""
        blocks = self.plan.blocks
        if self.bias is not None:
            self._load(self.bias, [0], "bias", 0, sum(len(gang) for gang in self._gangs))
        for height in range(blocks.height_blocks):
            busy = [gang for gang in self._gangs if len(self._rows(gang, height))]
            for number in range(blocks.inner_blocks):
                if height == 0 or not self._stays:
                    start, tiles = self.space.weights_start(number), self.program.weights.tile_rows(number)
                    self._load(self.weights, tiles, "weights", start, sum(map(len, busy)))
                for gang in busy:
                    rows = self._rows(gang, height)
                    self._multiply(gang, self.feed.block(gang, number, rows), number, rows)
            for gang in busy:
                self._finish(gang, self._rows(gang, height))
        feed = self.feed
        return Ledger(local=feed.copied, multicast=self.sent + feed.sent, global_read=self.read)

    def _rows(self, gang: Gang, height: int) -> Interval:
        """The outputs of a core that a block of the height has; a short shard may have none of them."""
        first = height * self.space.act_height
        return Interval(first, min(gang.outputs, first + self.space.act_height))

    def _load(self, stored: Interleaved, tiles: Sequence[int], name: str, start: int, rows: int) -> None:
        """Rows of tiles from global memory to the first row of cores, to each its columns.

        It passes them on to all rows that are at work: there is room for them on each, and they are counted for each
        but the first. But they are read where they came to lie first, since they are the same everywhere.
        """
        dtype, wide = stored.matrix.dtype, self.plan.blocks.out_width
        every = self.output.across * wide
        chunk = dtype.tile_bytes // TILE  # a row of a tile
        lane = torch.int64 if chunk % 8 == 0 else torch.int16
        lanes = chunk // lane.itemsize
        for run in progressions(tiles):
            # a view of the pages and no copy: a call that is made again has to read what lies there then
            pages = stored.pages.get(Interval(run[0] * every, (run[-1] + 1) * every)).view(lane)
            block = pages.view(-1, self.output.across, wide, TILE, lanes)[:: run.step].permute(1, 0, 3, 2, 4)
            for columns in self._columns:
                cores, shape = self._first.cores(self.output, columns), (len(run) * TILE, wide * lanes)
                target = self.space.arena.across(cores, self.space.buffers[name], lane, shape, start)
                self.calls.do(target.view(-1, len(run), TILE, wide, lanes).copy_, block[columns.slice])
            start += len(run) * wide * dtype.tile_bytes
        size = len(tiles) * every * dtype.tile_bytes
        self.read += size
        self.sent += size * (rows - 1)

    def _multiply(self, gang: Gang, block: Slab, number: int, rows: Interval) -> None:
        """Multiply an activation block by the weights of every core, and add it to its sums."""
        if not self._as_they_are:
            self._unpack(gang, block, number, rows)
            return
        real, space, first = self.program.weights.block_rows, self.space, number == 0
        left = block.typed[..., self.feed.channels(number)]
        for columns in self._columns:
            right = space.weights(self._first.cores(self.output, columns), number).typed[0, :, :real]
            sums = space.sums(gang.cores(self.output, columns), self.output, rows).typed
            if len(columns) == 1:  # all rows by the same weights
                self._product(left[:, 0], right.expand(len(gang), -1, -1), sums[:, 0], first=first)
                continue
            for row in range(len(gang)):  # all weights by the same row
                self._product(left[row].expand(len(columns), -1, -1), right, sums[row], first=first)

    def _product(self, left: torch.Tensor, right: torch.Tensor, sums: torch.Tensor, *, first: bool) -> None:
        """Multiply the blocks of some cores, and put the products into their sums or add them.

        Products of several cores are made side by side in registers, if those stay in a cache: torch shares them out
        over its threads there, but multiplies one after the other what is to lie in the memories of the cores.
        """
        if len(sums) > 1 and sums.nbytes <= CACHE * torch.get_num_threads():
            if self._registers.numel() < sums.numel():
                self._registers = sums.new_empty(sums.numel())
            products = self._registers[: sums.numel()].view(sums.shape)
            self.calls.do(torch.bmm, left, right, out=products)
            self.calls.do(sums.copy_ if first else sums.add_, products)
            return
        one = len(sums) == 1  # torch is quicker with two matrices than with a batch of one
        if one:
            left, right, sums = left[0], right[0], sums[0]
        if first:
            self.calls.do(torch.mm if one else torch.bmm, left, right, out=sums)
        else:
            self.calls.do(sums.addmm_ if one else sums.baddbmm_, left, right)

    def _unpack(self, gang: Gang, block: Slab, number: int, rows: Interval) -> None:
        """Multiply numbers that have to be unpacked first, column of cores after column."""
        real, activations = self.program.weights.block_rows, block.load()[..., self.feed.channels(number)]
        for column in range(self.output.across):
            one = Interval(column, column + 1)
            if (column, number) not in self._known_weights:
                weights = self.space.weights(self._first.cores(self.output, one), number)
                self._known_weights[column, number] = weights.load()[0, 0, :real]
            sums = self.space.sums(gang.cores(self.output, one), self.output, rows)
            known = self._known_weights[column, number]
            self.arithmetic.accumulate(sums, activations, known, first=number == 0)

    def _finish(self, gang: Gang, rows: Interval) -> None:
        """Add the bias, apply the activation, and store the output in its format."""
        space, full = self.space, self.arithmetic.is_full
        for columns in self._columns:
            cores = gang.cores(self.output, columns)
            values = space.sums(cores, self.output, rows).load()
            if self.bias is not None:
                self.calls.do(values.add_, space.bias(self._first.cores(self.output, columns)).load())
            if self.plan.config.activation:
                approximate = self.plan.compute.math_approx_mode and not full
                self.calls.do(activate, values, self.plan.config.activation, approximate=approximate)
            if not full or "partials" in space.buffers:
                self.calls.do(space.output(cores, self.output, rows).store, values)
