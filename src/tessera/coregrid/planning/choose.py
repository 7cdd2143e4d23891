"""What a call of `conv2d` does: the layout that is asked for, or the chip's own choice; in slices where it must."""

from __future__ import annotations

from tessera.coregrid.config import SliceConfig
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.device.arena import OutOfMemory
from tessera.coregrid.planning.autoshard import auto_shard
from tessera.coregrid.planning.knobs import advice
from tessera.coregrid.planning.plan import ConvPlan, Setup, planned
from tessera.coregrid.planning.sharding import ShardLayout
from tessera.coregrid.planning.slicing import plan_sliced


def plan_call(
    conv: Convolution,
    setup: Setup,
    *,
    lies: ShardLayout | None = None,
    in_global_memory: bool = False,
    slices: SliceConfig | None = None,
) -> ConvPlan:
    """The plan that a call executes; an error that names need, have and a knob if it does not fit.

    The layout is the config's, else that in which the input `lies` (unless it may be resharded), else the chip's own
    choice. A convolution whose input is in global memory goes through it in slices if its shards do not fit, or if
    `slices` says so.
    """
    layout = setup.config.shard_layout or (None if setup.config.reshard_if_not_optimal else lies)
    if slices is not None:
        plan = plan_sliced(conv, setup, slices, layout=layout)
    else:
        plan = planned(conv, layout, setup) if layout else auto_shard(conv, setup)
        if not plan.fits and in_global_memory:
            plan = plan_sliced(conv, setup, layout=layout)
    if not plan.fits:
        raise OutOfMemory(f"out of memory: {advice(plan)}")
    return plan
