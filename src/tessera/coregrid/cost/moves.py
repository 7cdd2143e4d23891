"""How a tensor lies over the cores, and what it costs to lay it otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tessera.coregrid.cost.rates import Rates
from tessera.coregrid.formats import TILE, DataType
from tessera.coregrid.planning.plan import ConvPlan
from tessera.coregrid.planning.sharding import ShardLayout
from tessera.coregrid.planning.sticks import Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Lying:
    """Shards of `height` sticks and `width` channels: shard (r, c) of `rows` by `columns` on core (r, c) of the grid.

    Shards of one row or one column are dealt to the cores row by row, `across` cores in a row. Two tensors that lie
    alike are equal, whatever operation made them.
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


def input_of(plan: ConvPlan) -> Lying:
    """How a plan wants its input to lie."""
    sharding, conv = plan.sharding, plan.conv
    return _lying(plan, conv.inputs, conv.in_channels, sharding.columns, sharding.in_height, sharding.in_width)


def output_of(plan: ConvPlan) -> Lying:
    """How a plan leaves its output."""
    sharding, conv = plan.sharding, plan.conv
    return _lying(plan, conv.outputs, conv.out_channels, sharding.out_columns, sharding.out_height, sharding.out_width)


def _lying(plan: ConvPlan, sticks: int, channels: int, columns: int, height: int, width: int) -> Lying:
    block = plan.layout == ShardLayout.BLOCK
    return Lying(
        sticks=sticks,
        channels=channels,
        rows=plan.sharding.rows,
        columns=columns,
        height=height,
        width=width,
        across=plan.grid.cols,
        transposed=block and not plan.config.transpose_shards,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reshard:
    """Numbers that stay on their core and that go to another one, and the most that one core sends or receives."""

    kept: int
    moved: int
    busiest: int

    def seconds(self, rates: Rates, dtype: DataType) -> float:
        """How long it takes if every core sends at once, tile by tile."""
        tiles = -(-self.busiest // TILE**2)
        return rates.moved(tiles * dtype.tile_bytes, tiles)


@lru_cache(maxsize=4096)
def reshard(source: Lying, target: Lying) -> Reshard:
    """What moves when a tensor that lies one way is laid another way."""
    total = source.sticks * source.channels
    if source == target:
        return Reshard(kept=total, moved=0, busiest=0)
    cores, here = _boxes(source)
    others, there = _boxes(target)
    at = {core: number for number, core in enumerate(cores)}
    kept = np.zeros(len(others), dtype=np.int64)
    stays = np.zeros(len(cores), dtype=np.int64)
    for number, core in enumerate(others):
        if core in at:
            mine, yours = here[at[core]], there[number]
            tall = min(mine[1], yours[1]) - max(mine[0], yours[0])
            wide = min(mine[3], yours[3]) - max(mine[2], yours[2])
            kept[number] = stays[at[core]] = max(tall, 0) * max(wide, 0)
    sent, got = _sizes(here) - stays, _sizes(there) - kept
    return Reshard(kept=int(kept.sum()), moved=total - int(kept.sum()), busiest=int(max(sent.max(), got.max())))


def _boxes(lying: Lying) -> tuple[list[int], Ints]:
    """The core of every shard, and its sticks and channels: first, last + 1 of each."""
    down, right = np.divmod(np.arange(lying.cores), lying.columns)
    if lying.rows > 1 and lying.columns > 1:
        cores = right * lying.across + down if lying.transposed else down * lying.across + right
    else:
        cores = np.arange(lying.cores)
    edges = [
        np.minimum(down * lying.height, lying.sticks),
        np.minimum((down + 1) * lying.height, lying.sticks),
        np.minimum(right * lying.width, lying.channels),
        np.minimum((right + 1) * lying.width, lying.channels),
    ]
    return cores.tolist(), np.stack(edges, axis=1)


def _sizes(boxes: Ints) -> Ints:
    found: Ints = (boxes[:, 1] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 2])
    return found
