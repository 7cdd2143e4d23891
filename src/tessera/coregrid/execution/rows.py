"""The work of the cores, row of them after row: weights and activations brought in, multiplied, added up, stored."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tessera.coregrid.device.arena import progressions
from tessera.coregrid.device.slab import Slab
from tessera.coregrid.device.storage import Interleaved, Shards
from tessera.coregrid.execution.activations import activate
from tessera.coregrid.execution.feeding import Feed
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
        self.stays = self.plan.layout == ShardLayout.HEIGHT  # all weights at once, if they are needed again

    def run(self) -> Ledger:
        """Make all outputs, and say what moved."""
        for row, outputs in enumerate(self.program.outputs):
            if len(outputs):
                self.calls.next_part()
                self._row(row, len(outputs))
        feed = self.feed
        return Ledger(local=feed.copied, multicast=self.sent + feed.sent, global_read=self.read)

    def _row(self, row: int, outputs: int) -> None:
        cores = [self.output.core(row, column) for column in range(self.output.across)]
        runs = progressions(cores)
        if self.bias is not None:
            self._load(self.bias, [0], "bias", 0, row, runs)
        loaded: set[int] = set()
        height = self.space.act_height
        for first in range(0, outputs, height):
            rows = Interval(first, min(outputs, first + height))
            for number in range(self.plan.blocks.inner_blocks):
                if not (self.stays and number in loaded):
                    start, tiles = self.space.weights_start(number), self.program.weights.tile_rows(number)
                    self._load(self.weights, tiles, "weights", start, row, runs)
                    loaded.add(number)
                block = self.feed.block(row, number, rows, runs)
                self._multiply(block, number, rows, runs)
            for core in cores:
                self._finish(core, rows)

    def _load(
        self, stored: Interleaved, tiles: Sequence[int], name: str, start: int, row: int, runs: Sequence[range]
    ) -> None:
        """Rows of tiles from global memory to the cores of a row, to each its columns; the first row passes them on."""
        dtype, columns, wide = stored.matrix.dtype, self.output.across, self.plan.blocks.out_width
        every = columns * wide
        if tiles[-1] - tiles[0] == len(tiles) - 1:
            pages = stored.pages.get(Interval(tiles[0] * every, (tiles[-1] + 1) * every))
        else:
            pages = torch.cat([stored.pages.get(Interval(tile * every, (tile + 1) * every)) for tile in tiles])
        chunk = dtype.tile_bytes // TILE  # a row of a tile
        lane = torch.int64 if chunk % 8 == 0 else torch.int16
        lanes = chunk // lane.itemsize
        block = pages.view(lane).view(len(tiles), columns, wide, TILE, lanes).permute(1, 0, 3, 2, 4)
        column = 0
        for cores in runs:
            shape = len(tiles) * TILE, wide * lanes
            target = self.space.arena.across(cores, self.space.buffers[name], lane, shape, start)
            target = target.view(len(cores), len(tiles), TILE, wide, lanes)
            self.calls.do(target.copy_, block[column : column + len(cores)])
            column += len(cores)
        size = len(tiles) * every * dtype.tile_bytes
        if row:
            self.sent += size
        else:
            self.read += size

    def _multiply(self, block: Slab, number: int, rows: Interval, runs: Sequence[range]) -> None:
        """Multiply an activation block by the weights of every core of the row, and add it to its sums."""
        real, first, space = self.program.weights.block_rows, number == 0, self.space
        if self.arithmetic.is_full and self.plan.weights_dtype is float32 and self.output.across > 1:
            arena, sums = space.arena, space.sums(block.core, self.output, rows)
            for cores in runs:  # in one call for all cores whose memories are evenly apart
                left = arena.across(cores, block.buffer, torch.float32, (block.rows, block.columns), block.start)
                shape = space.act_width, space.out_width
                right = arena.across(cores, space.buffers["weights"], torch.float32, shape, space.weights_start(number))
                into = arena.across(cores, sums.buffer, torch.float32, (sums.rows, sums.columns), sums.start)
                if first:
                    self.calls.do(torch.bmm, left[..., :real], right[:, :real], out=into)
                else:
                    self.calls.do(into.baddbmm_, left[..., :real], right[:, :real])
            return
        activations = block.load()[:, :real]  # the same numbers on all cores of the row
        for column, core in enumerate(core for cores in runs for core in cores):
            self.arithmetic.accumulate(
                space.sums(core, self.output, rows),
                activations,
                self._unpacked(core, column, number)[:real],
                first=first,
                calls=self.calls,
            )

    def _unpacked(self, core: int, column: int, number: int) -> torch.Tensor:
        """A core's block of weights as float32; those of the first row of cores serve all rows, whose are the same."""
        if self.plan.weights_dtype is float32:
            return self.space.weights(core, number).load()
        if (column, number) not in self._known_weights:
            self._known_weights[column, number] = self.space.weights(core, number).load()
        return self._known_weights[column, number]

    def _finish(self, core: int, rows: Interval) -> None:
        """Add the bias, apply the activation, and store the output in its format."""
        space, full = self.space, self.arithmetic.is_full
        sums = space.sums(core, self.output, rows)
        values = sums.load()
        if self.bias is not None:
            self.calls.do(values.add_, space.bias(core).load())
        if self.plan.config.activation:
            approximate = self.plan.compute.math_approx_mode and not full
            self.calls.do(activate, values, self.plan.config.activation, approximate=approximate)
        if not full or "partials" in space.buffers:
            self.calls.do(space.output(core, self.output, rows).store, values)
