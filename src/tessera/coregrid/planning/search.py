"""The search for the fastest way to lay a convolution on a machine that fits its cores."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tessera.coregrid.config import ComputeConfig, Conv2dConfig, SliceConfig
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.cost.timeline import Prediction, predicted
from tessera.coregrid.formats import TILE, DataType, Layout
from tessera.coregrid.planning.autoshard import auto_shard
from tessera.coregrid.planning.knobs import advice
from tessera.coregrid.planning.plan import MB, ConvPlan, Setup, layouts_for, planned
from tessera.coregrid.planning.sharding import ShardLayout
from tessera.coregrid.planning.slicing import plan_sliced
from tessera.errors import TesseraError
from tessera.geometry import Mesh
from tessera.machine.machine import Machine

BLOCK_HEIGHTS = 3  # smaller activation blocks to try besides the whole shard


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A plan and its predicted time."""

    plan: ConvPlan
    predicted: Prediction

    @property
    def seconds(self) -> float:
        return self.predicted.seconds

    @property
    def fits(self) -> bool:
        return self.plan.fits

    def __str__(self) -> str:
        """What a user would set to get this plan."""
        plan, config = self.plan, self.plan.config
        parts = [f"{plan.layout} on {plan.grid.rows}x{plan.grid.cols}"]
        if plan.layout == ShardLayout.BLOCK and not config.transpose_shards:
            parts.append("transpose_shards=False")
        if config.act_block_h_override and plan.layout != ShardLayout.WIDTH:
            parts.append(f"act_block_h_override={config.act_block_h_override}")
        if config.act_block_w_div > 1 and plan.layout == ShardLayout.WIDTH:
            parts.append(f"act_block_w_div={config.act_block_w_div}")
        if config.enable_act_double_buffer:
            parts.append("enable_act_double_buffer=True")
        if config.enable_weights_double_buffer:
            parts.append("enable_weights_double_buffer=True")
        if config.enable_split_reader:
            parts.append("enable_split_reader=True")
        if plan.slices:
            parts.append(f"{len(plan.slices)} slices of the {plan.slices[0].axis}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Every candidate, the fastest that fits first; and the chip's own choice of a layout to compare with."""

    conv: Convolution
    machine: Machine
    candidates: tuple[Candidate, ...]
    auto: Candidate

    @property
    def best(self) -> Candidate:
        """The fastest candidate that fits; an error that says what each layout lacks if there is none."""
        if not self.candidates or not self.candidates[0].fits:
            raise TesseraError("this convolution does not fit the machine", do="; ".join(self.misfits()))
        return self.candidates[0]

    def misfits(self) -> list[str]:
        """Of every layout that fits in no way that was tried: need, have, and the knob that saves most."""
        found = []
        for layout in ShardLayout:
            mine = [candidate for candidate in self.candidates if candidate.plan.layout == layout]
            if mine and not any(candidate.fits for candidate in mine):
                found.append(advice(min((candidate.plan for candidate in mine), key=lambda plan: plan.high_water)))
        return found

    def explain(self) -> list[str]:
        """The choice in a few lines: what was chosen, what it gains over the chip's own choice, what does not fit."""
        best = self.best
        lines = [
            f"{best}: {best.seconds * 1e6:.1f} us, {best.plan.high_water / MB:.2f} MB per core "
            f"of {best.plan.have / MB:.2f}, bound by its {best.predicted.bound}"
        ]
        own = f"the chip's own choice is {self.auto}"
        if self.auto.fits:
            gain = self.auto.seconds / best.seconds
            lines.append(f"{own}: {self.auto.seconds * 1e6:.1f} us, {gain:.2f} times as long")
        else:
            lines.append(f"{own}, which does not fit: {advice(self.auto.plan)}")
        return lines + [advice(plan) for plan in self._defaults() if not plan.fits]

    def _defaults(self) -> list[ConvPlan]:
        """Every layout that was tried, as it is without further settings."""
        setup = self.auto.plan.setup
        return [planned(self.conv, layout, setup) for layout in _layouts(self.conv, setup)]


def plan_conv2d(
    conv: Convolution,
    machine: Machine,
    config: Conv2dConfig | None = None,
    compute: ComputeConfig | None = None,
    *,
    grid: Mesh | None = None,
    input_dtype: DataType | None = None,
    input_layout: Layout = Layout.TILE,
    bias: bool = False,
    slices: SliceConfig | None = None,
) -> Search:
    """Try layouts, grids, blocks and buffers; slices through global memory if nothing else fits, or if asked for.

    What the config sets stays as it is: a layout, an override of a block, a buffer that is on.
    """
    setup = Setup(
        machine=machine,
        config=replace(config or Conv2dConfig()),
        compute=replace(compute or ComputeConfig()),
        grid=grid,
        input_dtype=input_dtype,
        input_layout=input_layout,
        bias=bias,
    )
    own = (
        auto_shard(conv, setup)
        if setup.config.shard_layout is None
        else planned(conv, setup.config.shard_layout, setup)
    )
    plans: dict[object, ConvPlan] = {}
    if slices is None:
        for layout, tried in _variants(conv, setup):
            plan = planned(conv, layout, tried)
            plans.setdefault(_what_differs(plan), plan)
    found = [Candidate(plan=plan, predicted=predicted(plan)) for plan in plans.values()]
    if not any(candidate.fits for candidate in found):
        found += _sliced(conv, setup, slices)
    found.sort(key=lambda candidate: (not candidate.fits, candidate.seconds, candidate.plan.high_water))
    return Search(
        conv=conv, machine=machine, candidates=tuple(found), auto=Candidate(plan=own, predicted=predicted(own))
    )


def _variants(conv: Convolution, setup: Setup) -> Iterator[tuple[ShardLayout, Setup]]:
    """Every combination that is worth a try."""
    config = replace(setup.config, enable_split_reader=True)  # it takes no memory
    for layout, grid in itertools.product(ShardLayout, _grids(setup)):
        gridded = replace(setup, grid=grid, config=config)
        if layout not in _layouts(conv, gridded):
            continue
        laid = gridded.laid(layout)
        both = layout == ShardLayout.BLOCK and config.transpose_shards
        for transposed in (True, False) if both else (config.transpose_shards,):
            turned = replace(laid, config=replace(laid.config, transpose_shards=transposed))
            for blocked in _blocks(conv, layout, turned):
                for buffered in _buffers(blocked.config):
                    yield layout, replace(blocked, config=buffered)


def _layouts(conv: Convolution, setup: Setup) -> list[ShardLayout]:
    """The layout that is given, or all; without those that the settings do not allow."""
    given = setup.config.shard_layout
    return [layout for layout in layouts_for(conv, setup) if given in (None, layout)]


def _grids(setup: Setup) -> list[Mesh]:
    """The grid that is given, or the machine's and its halves."""
    if setup.grid or setup.config.grid:
        return [setup.cores]
    whole = setup.machine.workers
    halves = [Mesh(whole.rows, max(1, whole.cols // 2)), Mesh(max(1, whole.rows // 2), whole.cols)]
    return list(dict.fromkeys([whole, *halves]))


def _blocks(conv: Convolution, layout: ShardLayout, setup: Setup) -> Iterator[Setup]:
    """The blocks of the shard as it is, and smaller ones that divide it."""
    yield setup
    config = setup.config
    plan = planned(conv, layout, setup)
    if layout == ShardLayout.WIDTH:
        if config.act_block_w_div == 1:
            for parts in _divisors(plan.blocks.act_width)[1 : 1 + BLOCK_HEIGHTS]:
                yield replace(setup, config=replace(config, act_block_w_div=parts))
    elif not config.act_block_h_override:
        smaller = _divisors(plan.blocks.act_height)[:-1]
        for tiles in sorted({smaller[-1], smaller[len(smaller) // 2], smaller[0]}, reverse=True) if smaller else ():
            yield replace(setup, config=replace(config, act_block_h_override=tiles * TILE))


def _buffers(config: Conv2dConfig) -> Iterator[Conv2dConfig]:
    """One buffer or two, for activations and for weights; those that are on stay on."""
    for act in {config.enable_act_double_buffer, True}:
        for weights in {config.enable_weights_double_buffer, True}:
            yield replace(config, enable_act_double_buffer=act, enable_weights_double_buffer=weights)


def _sliced(conv: Convolution, setup: Setup, slices: SliceConfig | None) -> list[Candidate]:
    """Through global memory, in every layout that it fits in so; smaller blocks may need fewer slices."""
    plans: dict[object, ConvPlan] = {}
    for layout in _layouts(conv, setup):
        laid = replace(setup, config=replace(setup.config, enable_split_reader=True)).laid(layout)
        smaller = layout != ShardLayout.WIDTH and not laid.config.act_block_h_override
        for height in (0, TILE) if smaller else (laid.config.act_block_h_override,):
            blocked = replace(laid.config, act_block_h_override=height)
            for buffered in (blocked, replace(blocked, enable_act_double_buffer=True)):
                try:
                    plan = plan_sliced(conv, replace(laid, config=buffered), slices)
                except TesseraError:
                    continue  # not even slices of this layout fit
                plans.setdefault((_what_differs(plan), len(plan.slices)), plan)
    return [Candidate(plan=plan, predicted=predicted(plan)) for plan in plans.values()]


def _what_differs(plan: ConvPlan) -> object:
    """Two settings that come to the same shards, blocks and buffers are one candidate."""
    return plan.sharding, plan.blocks, plan.footprint, plan.config.transpose_shards


def _divisors(number: int) -> list[int]:
    """
    >>> _divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    return [part for part in range(1, number + 1) if number % part == 0]
