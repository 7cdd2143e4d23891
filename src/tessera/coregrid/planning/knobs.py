"""Which setting saves how much of a core's memory, tried one by one on a plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tessera.coregrid.config import Conv2dConfig
from tessera.coregrid.formats import TILE, bfloat8_b
from tessera.coregrid.planning.plan import MB, ConvPlan, planned
from tessera.coregrid.planning.sharding import ShardLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """A setting, what it saves of every core's memory in bytes, and whether the convolution then fits."""

    setting: str
    saves: int
    fits: bool
    config: Conv2dConfig

    def __str__(self) -> str:
        return f"{self.setting} saves {self.saves / MB:.2f} MB"


def knobs(plan: ConvPlan) -> list[Knob]:
    """Every setting that saves memory, those first that cost least: buffers, then blocks, then precision.

    Of a convolution in slices it is the slice that takes most that counts.
    """
    parts = list({part.plan.conv: part.plan for part in plan.slices}.values()) or [plan]
    found = []
    for setting, config in _settings(plan):
        others = [planned(part.conv, part.layout, replace(part.setup, config=config)) for part in parts]
        saves = plan.high_water - max(other.high_water for other in others)
        if saves > 0:
            fits = all(other.fits for other in others)
            found.append(Knob(setting=setting, saves=saves, fits=fits, config=config))
    return found


def advice(plan: ConvPlan) -> str:
    """Whether a plan fits, in one line; and if not, the knob that makes it fit, or else the one that saves most."""
    if plan.fits:
        return plan.reason
    found = knobs(plan)
    best = next((knob for knob in found if knob.fits), None) or max(found, key=lambda k: k.saves, default=None)
    more = "; more slices take less" if plan.slices else ""
    return f"{plan.reason}; {best}{more}" if best else f"{plan.reason}; no knob saves any{more}"


def _settings(plan: ConvPlan) -> Iterator[tuple[str, Conv2dConfig]]:
    config, layout = plan.config, plan.layout
    if not config.deallocate_activation and not plan.conv.is_matmul:
        yield "deallocate_activation=True", replace(config, deallocate_activation=True)
    if config.enable_weights_double_buffer:
        yield "enable_weights_double_buffer=False", replace(config, enable_weights_double_buffer=False)
    if config.enable_act_double_buffer:
        yield "enable_act_double_buffer=False", replace(config, enable_act_double_buffer=False)
    if config.full_inner_dim and layout == ShardLayout.BLOCK:
        yield "full_inner_dim=False", replace(config, full_inner_dim=False)
    if layout == ShardLayout.WIDTH:
        tiles = plan.blocks.act_width * config.act_block_w_div
        for parts in range(config.act_block_w_div + 1, tiles + 1):
            if tiles % parts == 0:
                yield f"act_block_w_div={parts}", replace(config, act_block_w_div=parts)
    else:
        height = plan.blocks.act_height
        for tiles in range(height - 1, 0, -1):
            if height % tiles == 0:
                sticks = tiles * TILE
                yield f"act_block_h_override={sticks}", replace(config, act_block_h_override=sticks)
    if not config.weights_dtype.is_block:
        yield "weights_dtype=bfloat8_b", replace(config, weights_dtype=bfloat8_b)
