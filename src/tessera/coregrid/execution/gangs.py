"""Rows of cores that work in step: a call does for all of them at once what each of them does.

Most of the time of a small block goes into finding it and calling something for it. Cores that have equally many
outputs do the same at the same places of their memories, so one call on all those memories serves all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessera.coregrid.device.arena import Cores, progressions
from tessera.coregrid.device.storage import Shards
from tessera.geometry import Interval

CACHE = 1 << 19  # bytes of blocks that are worked on at once: what stays next to one of this host's processors


@dataclass(frozen=True, slots=True)
class Gang:
    """Consecutive rows of cores with so many outputs each, evenly apart."""

    rows: range
    outputs: int
    step: int

    def __len__(self) -> int:
        return len(self.rows)

    def cores(self, shards: Shards, columns: Interval) -> Cores:
        """The cores that have these columns of shards, which lie evenly as well."""
        first = shards.core(self.rows.start, columns.start)
        across = shards.core(self.rows.start, columns.start + 1) - first if len(columns) > 1 else 1
        return Cores(first, (len(self.rows), len(columns)), (self.step, across))


def gangs(outputs: Sequence[Interval], shards: Shards, block_bytes: int) -> list[Gang]:
    """All rows of cores that make outputs, as many together as their activation blocks stay in a cache."""
    most = max(1, CACHE // block_bytes)
    found = []
    row = 0
    while row < len(outputs) and len(outputs[row]):
        step = shards.core(row + 1, 0) - shards.core(row, 0) if row + 1 < shards.down else 1
        stop = row + 1
        while (
            stop < min(row + most, len(outputs))
            and len(outputs[stop]) == len(outputs[row])
            and shards.core(stop, 0) - shards.core(stop - 1, 0) == step
        ):
            stop += 1
        found.append(Gang(range(row, stop), len(outputs[row]), step))
        row = stop
    return found


def even_columns(shards: Shards) -> list[Interval]:
    """The columns of shards in runs whose cores are evenly apart."""
    found, at = [], 0
    for run in progressions([shards.core(0, column) for column in range(shards.across)]):
        found.append(Interval(at, at + len(run)))
        at += len(run)
    return found
