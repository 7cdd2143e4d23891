"""Groups of core rows that run in lockstep, so that one call does the work of all cores of a group.

For small blocks, most of the time is spent on computing addresses and on call overhead. Cores with an equal number of
outputs use equal addresses, so a strided view of their memories processes all of them in one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessera.coregrid.device.arena import StridedCores, split_into_progressions
from tessera.coregrid.device.storage import ShardedStorage
from tessera.geometry import Interval

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
