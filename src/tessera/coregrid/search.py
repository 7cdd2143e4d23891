"""Search for the fastest plan of a convolution that fits the cores of a machine."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tessera.coregrid.config import ComputeConfig, Conv2dConfig, ShardLayout, SliceConfig
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.cost.timeline import Prediction, predict_time
from tessera.coregrid.formats import TILE_SIZE, DataType, Layout
from tessera.coregrid.planning.plan import (
    MIB,
    ConvPlan,
    explain_fit,
    list_layouts,
    plan_layout,
    plan_layout_or_default,
)
from tessera.coregrid.planning.setup import ConvSetup
from tessera.coregrid.planning.slicing import plan_sliced
from tessera.errors import TesseraError
from tessera.geometry import Mesh
from tessera.machine import load_machine
from tessera.machine.machine import Machine
from tessera.tabular import Tabular

MAX_SMALLER_BLOCKS = 3  # number of smaller blocks tried besides the whole-shard block


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvCandidate:
    """A candidate of a search: a plan and its predicted time."""

    plan: ConvPlan
    predicted: Prediction

    @property
    def seconds(self) -> float:
        return self.predicted.seconds

    @property
    def fits(self) -> bool:
        return self.plan.fits

    def __str__(self) -> str:
        """Return the settings that select this plan as text."""
        plan, config = self.plan, self.plan.config
        parts = [f"{plan.layout} on {plan.grid.rows}x{plan.grid.cols}"]
        if plan.layout == ShardLayout.BLOCK and config.transpose_shards:
            parts.append("transpose_shards=True")
        if config.act_block_h_override and plan.layout != ShardLayout.WIDTH:
            parts.append(f"act_block_h_override={config.act_block_h_override}")
        if config.act_block_w_div > 1 and plan.layout == ShardLayout.WIDTH:
            parts.append(f"act_block_w_div={config.act_block_w_div}")
        switches = (
            "deallocate_activation",
            "reallocate_halo_output",
            "full_inner_dim",
            "enable_act_double_buffer",
            "enable_weights_double_buffer",
            "enable_activation_reuse",
            "enable_split_reader",
        )
        parts += [f"{name}=True" for name in switches if getattr(config, name)]
        if plan.slices:
            parts.append(f"{len(plan.slices)} slices of the {plan.slices[0].axis}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvSearch(Tabular):
    """Result of a search: all candidates, the fastest that fits first, and the plan of the chip's default rule."""

    conv: Convolution
    candidates: tuple[ConvCandidate, ...]
    auto: ConvCandidate

    @property
    def best(self) -> ConvCandidate:
        """The fastest candidate that fits. Raises an error with the required memory of every layout if none fits."""
        if not self.candidates or not self.candidates[0].fits:
            raise TesseraError("this convolution does not fit the machine", do="; ".join(self.explain_misfits()))
        return self.candidates[0]

    def to_rows(self) -> list[dict[str, Any]]:
        """Return one table row per candidate, the fastest that fits first."""
        return [
            {**candidate.plan.to_dict(), "seconds": candidate.seconds, "bound": candidate.predicted.bound}
            for candidate in self.candidates
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return all candidates as a dict of plain values."""
        return {"candidates": self.to_rows()}

    def explain_misfits(self) -> list[str]:
        """Return a line for every layout that does not fit: the required memory, and a setting that saves memory."""
        lines = []
        for layout in ShardLayout:
            plans = [candidate.plan for candidate in self.candidates if candidate.plan.layout == layout]
            if plans and not any(plan.fits for plan in plans):
                lines.append(explain_fit(min(plans, key=lambda plan: plan.high_water)))
        return lines

    def explain(self) -> list[str]:
        """Return lines of text: the best plan, its speed-up over the default rule, and the layouts that do not fit."""
        best = self.best
        lines = [
            f"{best}: {best.seconds * 1e6:.1f} us, {best.plan.high_water / MIB:.2f} MiB per core "
            f"of {best.plan.capacity / MIB:.2f}, bound by {best.predicted.bound}"
        ]
        rule = f"the chip's default rule selects {self.auto}"
        if self.auto.fits:
            gain = self.auto.seconds / best.seconds
            lines.append(f"{rule}: {self.auto.seconds * 1e6:.1f} us, {gain:.2f} times as long")
        else:
            lines.append(f"{rule}, which does not fit: {explain_fit(self.auto.plan)}")
        return lines + [explain_fit(plan) for plan in self._plan_defaults() if not plan.fits]

    def _plan_defaults(self) -> list[ConvPlan]:
        """Plan every allowed layout with the default block sizes and buffers."""
        setup = self.auto.plan.setup
        return [plan_layout(self.conv, layout, setup) for layout in _list_searched_layouts(self.conv, setup)]


def plan_conv2d(
    conv: Convolution,
    machine: Machine | str,
    config: Conv2dConfig | None = None,
    compute: ComputeConfig | None = None,
    *,
    grid: Mesh | None = None,
    input_dtype: DataType | None = None,
    input_layout: Layout = Layout.TILE,
    bias: bool = False,
    slices: SliceConfig | None = None,
) -> ConvSearch:
    """Search for the fastest plan over layouts, grids, block sizes and buffers.

    `machine` is a machine or its name (see `tessera list machines`). The search does not change settings that the
    config specifies: a layout, a block override, an enabled double buffer. Sliced plans are searched if no other plan
    fits or if `slices` is set.
    """
    setup = ConvSetup(
        machine=load_machine(machine) if isinstance(machine, str) else machine,
        config=replace(config or Conv2dConfig()),
        compute=replace(compute or ComputeConfig()),
        grid=grid,
        input_dtype=input_dtype,
        input_layout=input_layout,
        bias=bias,
    )
    return search_plans(conv, setup, slices)


def search_plans(
    conv: Convolution, setup: ConvSetup, slices: SliceConfig | None = None, *, quick: bool = False
) -> ConvSearch:
    """Search for the fastest plan of a convolution with the settings of a setup (see `plan_conv2d`).

    `quick` searches fewer grids, blocks and buffers, for networks of many layers.
    """
    default = plan_layout_or_default(conv, setup.config.shard_layout, setup)
    plans: dict[object, ConvPlan] = {}
    if slices is None:
        for layout, variant in _iter_variants(conv, setup, quick=quick):
            plan = plan_layout(conv, layout, variant)
            plans.setdefault(_build_plan_key(plan), plan)
    if not any(plan.fits for plan in plans.values()):
        plans |= _search_slices(conv, setup, slices)
    if slices is None and default.fits:  # the best candidate is never slower than the default rule
        plans.setdefault(_build_plan_key(default), default)
    candidates = [ConvCandidate(plan=plan, predicted=predict_time(plan)) for plan in plans.values()]
    candidates.sort(key=lambda candidate: (not candidate.fits, candidate.seconds, candidate.plan.high_water))
    return ConvSearch(
        conv=conv, candidates=tuple(candidates), auto=ConvCandidate(plan=default, predicted=predict_time(default))
    )


def _iter_variants(
    conv: Convolution, setup: ConvSetup, *, quick: bool = False
) -> Iterator[tuple[ShardLayout, ConvSetup]]:
    """Yield every combination of layout, grid, orientation, blocks and buffers to try."""
    config = replace(setup.config, enable_split_reader=True)  # a split reader requires no additional memory
    for layout, grid in itertools.product(ShardLayout, _list_grids(setup)[: 1 if quick else None]):
        on_grid = replace(setup, grid=grid, config=config)
        if layout not in _list_searched_layouts(conv, on_grid):
            continue
        base = on_grid.with_layout(layout)
        if layout == ShardLayout.HEIGHT and can_reuse_activations(conv):
            base = replace(base, config=replace(base.config, enable_activation_reuse=True))
        both = layout == ShardLayout.BLOCK and not config.transpose_shards and not quick
        for transposed in (False, True) if both else (config.transpose_shards,):
            oriented = replace(base, config=replace(base.config, transpose_shards=transposed))
            for blocked in _iter_block_setups(conv, layout, oriented):
                for buffered in _iter_buffer_configs(blocked.config, quick=quick):
                    yield layout, replace(blocked, config=buffered)


def can_reuse_activations(conv: Convolution) -> bool:
    """Return whether the windows of adjacent output lines overlap, so that `enable_activation_reuse` has an effect."""
    return conv.kernel[0] > 1 and conv.stride == (1, 1) and conv.dilation == (1, 1)


def _list_searched_layouts(conv: Convolution, setup: ConvSetup) -> list[ShardLayout]:
    """Return the layouts to search: all layouts that the settings allow, or only `config.shard_layout` if it is set."""
    required = setup.config.shard_layout
    return [layout for layout in list_layouts(conv, setup) if required in (None, layout)]


def _list_grids(setup: ConvSetup) -> list[Mesh]:
    """Return the grids to search: the required grid, or the machine's grid and its horizontal and vertical halves."""
    if setup.grid or setup.config.grid:
        return [setup.cores]
    whole = setup.machine.workers
    halves = [Mesh(whole.rows, max(1, whole.cols // 2)), Mesh(max(1, whole.rows // 2), whole.cols)]
    return list(dict.fromkeys([whole, *halves]))


def _iter_block_setups(conv: Convolution, layout: ShardLayout, setup: ConvSetup) -> Iterator[ConvSetup]:
    """Yield the setup as given (by default with whole-shard blocks), then setups with smaller blocks."""
    yield setup
    config = setup.config
    plan = plan_layout(conv, layout, setup)
    if layout == ShardLayout.WIDTH:
        if config.act_block_w_div == 1:
            for parts in _list_divisors(plan.blocks.act_width)[1 : 1 + MAX_SMALLER_BLOCKS]:
                yield replace(setup, config=replace(config, act_block_w_div=parts))
    elif not config.act_block_h_override:
        smaller = _list_divisors(plan.blocks.act_height)[:-1]
        for tiles in sorted({smaller[-1], smaller[len(smaller) // 2], smaller[0]}, reverse=True) if smaller else ():
            yield replace(setup, config=replace(config, act_block_h_override=tiles * TILE_SIZE))


def _iter_buffer_configs(config: Conv2dConfig, *, quick: bool = False) -> Iterator[Conv2dConfig]:
    """Yield configs with single and double buffers for activations and weights. Enabled double buffers stay enabled.

    `quick` yields only no additional double buffer and all of them.
    """
    for act in sorted({config.enable_act_double_buffer, True}):
        for weights in sorted({config.enable_weights_double_buffer, True}):
            if (
                quick
                and act != weights
                and not (config.enable_act_double_buffer or config.enable_weights_double_buffer)
            ):
                continue
            yield replace(config, enable_act_double_buffer=act, enable_weights_double_buffer=weights)


def _search_slices(conv: Convolution, setup: ConvSetup, slices: SliceConfig | None) -> dict[object, ConvPlan]:
    """Return the sliced plans of all layouts whose slices fit, also with small blocks, which may need fewer slices."""
    plans: dict[object, ConvPlan] = {}
    for layout in _list_searched_layouts(conv, setup):
        base = replace(setup, config=replace(setup.config, enable_split_reader=True)).with_layout(layout)
        smaller = layout != ShardLayout.WIDTH and not base.config.act_block_h_override
        for height in (0, TILE_SIZE) if smaller else (base.config.act_block_h_override,):
            blocked = replace(base.config, act_block_h_override=height)
            for buffered in (blocked, replace(blocked, enable_act_double_buffer=True)):
                try:
                    plan = plan_sliced(conv, replace(base, config=buffered), slices)
                except TesseraError:
                    continue  # no slices fit in this layout
                plans.setdefault((_build_plan_key(plan), len(plan.slices)), plan)
    return plans


def _build_plan_key(plan: ConvPlan) -> object:
    """Return a key that is equal for plans with equal shards, blocks and buffers, to skip duplicates."""
    return plan.sharding, plan.blocks, plan.footprint, plan.config.transpose_shards


def _list_divisors(number: int) -> list[int]:
    """Return all divisors of a number.

    >>> _list_divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    return [part for part in range(1, number + 1) if number % part == 0]
