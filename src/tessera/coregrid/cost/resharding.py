"""Placement of a tensor's shards on the cores, and the cost of moving a tensor to another placement."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tessera.coregrid.config import ShardLayout
from tessera.coregrid.cost.durations import CoreRates
from tessera.coregrid.formats import TILE_SIZE, DataType
from tessera.coregrid.planning.halo import IntArray
from tessera.coregrid.planning.plan import ConvPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardPlacement:
    """Placement of a tensor in `rows` x `columns` shards of `height` sticks and `width` channels.

    Shard (r, c) is on core (r, c) of a grid with `across` cores per row, or on core (c, r) if `transposed`. The shards
    of a single row or column are assigned to consecutive cores.
    """

    sticks: int
    channels: int
    rows: int
    columns: int
    height: int
    width: int
    across: int
    transposed: bool = False

    @property
    def cores(self) -> int:
        return self.rows * self.columns


def place_input(plan: ConvPlan) -> ShardPlacement:
    """Return the placement that a plan requires for the input tensor."""
    sharding, conv = plan.sharding, plan.conv
    return _build_placement(
        plan, conv.input_sticks, conv.in_channels, sharding.columns, sharding.in_height, sharding.in_width
    )


def place_output(plan: ConvPlan) -> ShardPlacement:
    """Return the placement of the output tensor of a plan."""
    sharding, conv = plan.sharding, plan.conv
    return _build_placement(
        plan, conv.output_sticks, conv.out_channels, sharding.out_columns, sharding.out_height, sharding.out_width
    )


def _build_placement(
    plan: ConvPlan, sticks: int, channels: int, columns: int, height: int, width: int
) -> ShardPlacement:
    block = plan.layout == ShardLayout.BLOCK
    return ShardPlacement(
        sticks=sticks,
        channels=channels,
        rows=plan.sharding.rows,
        columns=columns,
        height=height,
        width=width,
        across=plan.grid.cols,
        transposed=block and plan.config.transpose_shards,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReshardCost:
    """Number of values that stay on a core, that move, and that the busiest core sends or receives."""

    local: int
    moved: int
    busiest: int

    def compute_seconds(self, rates: CoreRates, dtype: DataType) -> float:
        """Return the resharding time in seconds: all cores send concurrently, tile by tile."""
        tiles = -(-self.busiest // TILE_SIZE**2)
        return rates.chip.reshard.compute_seconds(tiles * dtype.tile_bytes, tiles)


@lru_cache(maxsize=4096)
def compute_reshard_cost(source: ShardPlacement, target: ShardPlacement) -> ReshardCost:
    """Count the values that move from one placement to another."""
    total = source.sticks * source.channels
    if source == target:
        return ReshardCost(local=total, moved=0, busiest=0)
    source_cores, source_boxes = _compute_shard_boxes(source)
    target_cores, target_boxes = _compute_shard_boxes(target)
    source_index = {core: number for number, core in enumerate(source_cores)}
    local = np.zeros(len(target_cores), dtype=np.int64)
    stays = np.zeros(len(source_cores), dtype=np.int64)
    for number, core in enumerate(target_cores):
        if core in source_index:
            mine, yours = source_boxes[source_index[core]], target_boxes[number]
            tall = min(mine[1], yours[1]) - max(mine[0], yours[0])
            wide = min(mine[3], yours[3]) - max(mine[2], yours[2])
            local[number] = stays[source_index[core]] = max(tall, 0) * max(wide, 0)
    sent, got = _compute_box_sizes(source_boxes) - stays, _compute_box_sizes(target_boxes) - local
    return ReshardCost(local=int(local.sum()), moved=total - int(local.sum()), busiest=int(max(sent.max(), got.max())))


def _compute_shard_boxes(placement: ShardPlacement) -> tuple[list[int], IntArray]:
    """Return the core of every shard, and its box: first stick, last stick + 1, first channel, last channel + 1."""
    down, right = np.divmod(np.arange(placement.cores), placement.columns)
    if placement.rows > 1 and placement.columns > 1:
        cores = right * placement.across + down if placement.transposed else down * placement.across + right
    else:
        cores = np.arange(placement.cores)
    edges = [
        np.minimum(down * placement.height, placement.sticks),
        np.minimum((down + 1) * placement.height, placement.sticks),
        np.minimum(right * placement.width, placement.channels),
        np.minimum((right + 1) * placement.width, placement.channels),
    ]
    return cores.tolist(), np.stack(edges, axis=1)


def _compute_box_sizes(boxes: IntArray) -> IntArray:
    sizes: IntArray = (boxes[:, 1] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 2])
    return sizes
