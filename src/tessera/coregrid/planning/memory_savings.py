"""Settings that reduce the memory of a plan. Every setting is tried by planning the convolution again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tessera.coregrid.config import Conv2dConfig, ShardLayout
from tessera.coregrid.formats import TILE_SIZE, bfloat8_b
from tessera.coregrid.planning.plan import MIB, ConvPlan, plan_layout


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySaving:
    """A setting that saves memory, the bytes saved per core, and whether the convolution fits with this setting."""

    setting: str
    saves: int
    fits: bool
    config: Conv2dConfig

    def __str__(self) -> str:
        return f"{self.setting} saves {self.saves / MIB:.2f} MiB"


def list_memory_savings(plan: ConvPlan) -> list[MemorySaving]:
    """Return all settings that save memory, least costly first: buffers, then block sizes, then precision.

    For a sliced convolution, the saving is the difference of the peak memory of the largest slice.
    """
    parts = list({part.plan.conv: part.plan for part in plan.slices}.values()) or [plan]
    savings = []
    for setting, config in _iter_smaller_configs(plan):
        plans = [plan_layout(part.conv, part.layout, replace(part.setup, config=config)) for part in parts]
        saves = plan.high_water - max(smaller.high_water for smaller in plans)
        if saves > 0:
            fits = all(smaller.fits for smaller in plans)
            savings.append(MemorySaving(setting=setting, saves=saves, fits=fits, config=config))
    return savings


def explain_fit(plan: ConvPlan) -> str:
    """Explain in one line whether a plan fits; if not, name a setting with which it fits, or the largest saving."""
    if plan.fits:
        return plan.fit_summary
    savings = list_memory_savings(plan)
    largest = max(savings, key=lambda saving: saving.saves, default=None)
    best = next((saving for saving in savings if saving.fits), largest)
    slices_hint = "; more slices need less memory" if plan.slices else ""
    return (
        f"{plan.fit_summary}; {best}{slices_hint}"
        if best
        else f"{plan.fit_summary}; no setting saves memory{slices_hint}"
    )


def _iter_smaller_configs(plan: ConvPlan) -> Iterator[tuple[str, Conv2dConfig]]:
    """Yield each setting that may save memory as text, with the config that applies it."""
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
                sticks = tiles * TILE_SIZE
                yield f"act_block_h_override={sticks}", replace(config, act_block_h_override=sticks)
    if not config.weights_dtype.is_block:
        yield "weights_dtype=bfloat8_b", replace(config, weights_dtype=bfloat8_b)
