"""The circular buffers of a running convolution, and views of the matrices in these buffers."""

from __future__ import annotations

from tessera.coregrid.device.arena import Buffer, CoreArena, StridedCores
from tessera.coregrid.device.buffer_matrix import BufferMatrix
from tessera.coregrid.device.storage import ShardedStorage
from tessera.coregrid.formats import TILE_SIZE, DataType
from tessera.coregrid.planning.plan import ConvPlan
from tessera.geometry import Interval

CIRCULAR_BUFFERS = ("weights", "act", "act tilized", "act row major", "bias", "partials", "scratch")


class Workspace:
    """The circular buffers of a plan, allocated until `free`."""

    def __init__(self, plan: ConvPlan, arena: CoreArena, do: str) -> None:
        self.plan, self.arena = plan, arena
        self.buffers: dict[str, Buffer] = {}
        parts = plan.footprint.get_buffer_sizes()
        try:
            for name in CIRCULAR_BUFFERS:
                if name in parts:
                    self.buffers[name] = arena.allocate(parts[name], f"buffer {name}", from_bottom=True, do=do)
        except Exception:
            self.free()
            raise
        blocks = plan.blocks
        self.act_height, self.act_width, self.out_width = (
            blocks.act_height * TILE_SIZE,
            blocks.act_width * TILE_SIZE,
            blocks.out_width * TILE_SIZE,
        )
        # slots for weight blocks: one (single buffer), two (double buffer), or one per inner block (all weights stay)
        self.weights_block = blocks.act_width * blocks.out_width * plan.weights_dtype.tile_bytes
        self.weights_slots = parts["weights"] // self.weights_block

    def get_addresses(self) -> tuple[Interval, ...]:
        """Return the address range of every buffer."""
        return tuple(buffer.place for buffer in self.buffers.values())

    def free(self) -> None:
        for buffer in self.buffers.values():
            self.arena.free(buffer)
        self.buffers.clear()

    def get_matrix(
        self, cores: StridedCores, name: str, dtype: DataType, rows: int, columns: int, start: int = 0
    ) -> BufferMatrix:
        """Return a matrix of `rows` x `columns` in the buffer `name` of the given cores, from byte `start`."""
        return BufferMatrix(
            arena=self.arena,
            cores=cores,
            buffer=self.buffers[name],
            dtype=dtype,
            rows=rows,
            columns=columns,
            start=start,
        )

    def get_weights_start(self, block: int) -> int:
        """Return the byte offset of the weights of inner block `block` in the weight buffer."""
        return block % self.weights_slots * self.weights_block

    def get_weights(self, cores: StridedCores, block: int) -> BufferMatrix:
        """Return the weights of inner block `block` on the given cores."""
        start = self.get_weights_start(block)
        return self.get_matrix(cores, "weights", self.plan.weights_dtype, self.act_width, self.out_width, start)

    def get_bias(self, cores: StridedCores) -> BufferMatrix:
        """Return the bias on the given cores: the first row of its tiles."""
        return self.get_matrix(cores, "bias", self.plan.weights_dtype, 1, self.out_width)

    def get_sums(self, cores: StridedCores, output: ShardedStorage, rows: Interval) -> BufferMatrix:
        """Return the partial sums of output rows `rows`: in the buffer for partial sums, else in the output shard."""
        if "partials" in self.buffers:
            return self.get_matrix(cores, "partials", self.plan.partials_dtype, len(rows), self.out_width)
        return self.get_output(cores, output, rows)

    def get_output(self, cores: StridedCores, output: ShardedStorage, rows: Interval) -> BufferMatrix:
        """Return the rows `rows` of the output shards on the given cores."""
        dtype = self.plan.output_dtype
        return BufferMatrix(
            arena=self.arena,
            cores=cores,
            buffer=output.buffer,
            dtype=dtype,
            rows=len(rows),
            columns=self.out_width,
            start=rows.start * dtype.count_row_bytes(self.out_width),
        )
