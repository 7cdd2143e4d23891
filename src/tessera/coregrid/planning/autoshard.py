"""The chip's own choice of a layout: the one that takes least memory, whatever it costs in time."""

from __future__ import annotations

from tessera.coregrid.convolution import Convolution
from tessera.coregrid.planning.plan import ConvPlan, Setup, layouts_for, planned
from tessera.coregrid.planning.sharding import ShardLayout


def auto_shard(conv: Convolution, setup: Setup) -> ConvPlan:
    """The layout that takes least of a core's memory; the first of HEIGHT, BLOCK, WIDTH if several take as much.

    BLOCK counts only if it takes at least as many cores as the grid has columns, WIDTH only if the convolution is not
    a matmul and the settings allow it. It may be a plan that does not fit.
    """
    found = [planned(conv, ShardLayout.HEIGHT, setup)]
    block = planned(conv, ShardLayout.BLOCK, setup)
    if block.sharding.cores >= block.grid.cols:
        found.append(block)
    if not conv.is_matmul and ShardLayout.WIDTH in layouts_for(conv, setup):
        found.append(planned(conv, ShardLayout.WIDTH, setup))
    return min(found, key=lambda plan: plan.footprint.total)
