"""The circular buffers of a running convolution, and the groups of cores that process them in one call.

A group is a range of core rows that run in lockstep, so that one call does the work of all its cores. For small blocks,
most of the time is spent on computing addresses and on call overhead. Cores with an equal number of outputs use equal
addresses, so a strided view of their memories processes all of them in one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessera.coregrid.device.arena import Buffer, BufferMatrix, CoreArena, StridedCores, split_into_progressions
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
        self.act_height, self.act_width = blocks.act_height * TILE_SIZE, blocks.act_width * TILE_SIZE
        self.out_width = blocks.out_width * TILE_SIZE
        # slots for weight blocks: one (single buffer), two (double buffer), or one per inner block (all weights stay)
        self.weights_block = blocks.act_width * blocks.out_width * plan.config.weights_dtype.tile_bytes
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
        return BufferMatrix(self.arena, cores, self.buffers[name], dtype, rows, columns, start)

    def get_weights_start(self, block: int) -> int:
        """Return the byte offset of the weights of inner block `block` in the weight buffer."""
        return block % self.weights_slots * self.weights_block

    def get_weights(self, cores: StridedCores, block: int) -> BufferMatrix:
        """Return the weights of inner block `block` on the given cores."""
        start = self.get_weights_start(block)
        return self.get_matrix(cores, "weights", self.plan.config.weights_dtype, self.act_width, self.out_width, start)

    def get_bias(self, cores: StridedCores) -> BufferMatrix:
        """Return the bias on the given cores: the first row of its tiles."""
        return self.get_matrix(cores, "bias", self.plan.config.weights_dtype, 1, self.out_width)

    def get_sums(self, cores: StridedCores, output: ShardedStorage, rows: Interval) -> BufferMatrix:
        """Return the partial sums of output rows `rows`: in the buffer for partial sums, else in the output shard."""
        if "partials" in self.buffers:
            return self.get_matrix(cores, "partials", self.plan.partials_dtype, len(rows), self.out_width)
        return self.get_output(cores, output, rows)

    def get_output(self, cores: StridedCores, output: ShardedStorage, rows: Interval) -> BufferMatrix:
        """Return the rows `rows` of the output shards on the given cores."""
        dtype = self.plan.config.dtype
        start = rows.start * dtype.count_row_bytes(self.out_width)
        return BufferMatrix(self.arena, cores, output.buffer, dtype, len(rows), self.out_width, start)


MAX_GROUP_BYTES = 1 << 19  # maximum total size of the blocks of a group: about the L2 cache of one host core


@dataclass(frozen=True, slots=True)
class CoreGroup:
    """Consecutive rows of cores with an equal number of outputs per core and a constant step between core numbers."""

    rows: range
    outputs: int
    step: int

    def __len__(self) -> int:
        return len(self.rows)

    def get_cores(self, shards: ShardedStorage, columns: Interval) -> StridedCores:
        """Return the cores of this group that hold the columns `columns` of `shards`. They must be evenly spaced."""
        first = shards.get_core(self.rows.start, columns.start)
        across = shards.get_core(self.rows.start, columns.start + 1) - first if len(columns) > 1 else 1
        return StridedCores(first, (len(self.rows), len(columns)), (self.step, across))


def group_rows(outputs: Sequence[Interval], shards: ShardedStorage, block_bytes: int) -> list[CoreGroup]:
    """Group the rows of cores that compute outputs, so that the blocks of a group fit the cache of this host."""
    most = max(1, MAX_GROUP_BYTES // block_bytes)
    groups = []
    row = 0
    while row < len(outputs) and len(outputs[row]):
        step = shards.get_core(row + 1, 0) - shards.get_core(row, 0) if row + 1 < shards.down else 1
        stop = row + 1
        while (
            stop < min(row + most, len(outputs))
            and len(outputs[stop]) == len(outputs[row])
            and shards.get_core(stop, 0) - shards.get_core(stop - 1, 0) == step
        ):
            stop += 1
        groups.append(CoreGroup(range(row, stop), len(outputs[row]), step))
        row = stop
    return groups


def split_into_even_columns(shards: ShardedStorage) -> list[Interval]:
    """Split the columns of shards into ranges whose cores are evenly spaced."""
    runs, at = [], 0
    for run in split_into_progressions([shards.get_core(0, column) for column in range(shards.across)]):
        runs.append(Interval(at, at + len(run)))
        at += len(run)
    return runs
