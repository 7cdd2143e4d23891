"""The memory of a running convolution on every core: its haloed input, its circular buffers, its output."""

from __future__ import annotations

from tessera.coregrid.device.arena import Arena, Buffer, Cores
from tessera.coregrid.device.slab import Slab
from tessera.coregrid.device.storage import Shards
from tessera.coregrid.formats import TILE, DataType
from tessera.coregrid.planning.plan import ConvPlan
from tessera.geometry import Interval

OF_THE_RUN = ("weights", "act", "act tilized", "act row major", "bias", "partials", "scratch")


class Workspace:
    """The circular buffers of a plan, and matrices in them; they are there until `free`."""

    def __init__(self, plan: ConvPlan, arena: Arena, do: str) -> None:
        self.plan, self.arena = plan, arena
        self.buffers: dict[str, Buffer] = {}
        parts = plan.footprint.parts()
        try:
            for name in OF_THE_RUN:
                if name in parts:
                    self.buffers[name] = arena.allocate(parts[name], f"buffer {name}", from_bottom=True, do=do)
        except Exception:
            self.free()
            raise
        blocks = plan.blocks
        self.act_height, self.act_width, self.out_width = (
            blocks.act_height * TILE,
            blocks.act_width * TILE,
            blocks.out_width * TILE,
        )
        # what a block of each buffer takes; there are two places for a block that is double buffered, and one for
        # each if all weights stay
        self.weights_block = blocks.act_width * blocks.out_width * plan.weights_dtype.tile_bytes
        self.weights_places = parts["weights"] // self.weights_block

    def places(self) -> tuple[Interval, ...]:
        """Where the buffers lie."""
        return tuple(buffer.place for buffer in self.buffers.values())

    def free(self) -> None:
        for buffer in self.buffers.values():
            self.arena.free(buffer)
        self.buffers.clear()

    def slab(self, cores: Cores, name: str, dtype: DataType, rows: int, columns: int, start: int = 0) -> Slab:
        """A matrix in one of the buffers."""
        return Slab(
            arena=self.arena,
            cores=cores,
            buffer=self.buffers[name],
            dtype=dtype,
            rows=rows,
            columns=columns,
            start=start,
        )

    def weights_start(self, block: int) -> int:
        """Where in its buffer an inner block of weights lies."""
        return block % self.weights_places * self.weights_block

    def weights(self, cores: Cores, block: int) -> Slab:
        """An inner block of weights."""
        start = self.weights_start(block)
        return self.slab(cores, "weights", self.plan.weights_dtype, self.act_width, self.out_width, start)

    def bias(self, cores: Cores) -> Slab:
        """The first row of the tiles of the bias."""
        return self.slab(cores, "bias", self.plan.weights_dtype, 1, self.out_width)

    def sums(self, cores: Cores, output: Shards, rows: Interval) -> Slab:
        """Where the sums of some of every core's outputs wait: in their buffer, or where the output will lie."""
        if "partials" in self.buffers:
            return self.slab(cores, "partials", self.plan.partials_dtype, len(rows), self.out_width)
        return self.output(cores, output, rows)

    def output(self, cores: Cores, output: Shards, rows: Interval) -> Slab:
        """Some rows of the output of every core."""
        dtype = self.plan.output_dtype
        return Slab(
            arena=self.arena,
            cores=cores,
            buffer=output.buffer,
            dtype=dtype,
            rows=len(rows),
            columns=self.out_width,
            start=rows.start * dtype.row_bytes(self.out_width),
        )
