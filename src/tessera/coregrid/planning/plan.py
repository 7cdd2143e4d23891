"""The plan of one convolution on a core grid: shards, blocks, memory, bytes moved, and whether it fits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from tessera.coregrid.config import ComputeConfig, Conv2dConfig, ShardLayout, SliceAxis, choose_default_compute
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.formats import TILE_SIZE, DataType, Layout, bfloat8_b
from tessera.coregrid.memory_config import count_shards
from tessera.coregrid.planning.halo import HaloCounts, HaloRuns, count_halo, plan_halo_runs
from tessera.coregrid.planning.ledger import Ledger, predict_ledger
from tessera.coregrid.planning.memory import (
    Footprint,
    compute_footprint,
    get_partials_dtype,
    get_sticks_dtype,
    uses_packer_accumulation,
)
from tessera.coregrid.planning.setup import ConvSetup
from tessera.coregrid.planning.sharding import (
    BlockSizes,
    Sharding,
    choose_blocks,
    keep_shards,
    list_width_divisors,
    shard_convolution,
)
from tessera.errors import TesseraError
from tessera.geometry import Interval, Mesh
from tessera.machine.machine import Machine
from tessera.tabular import Tabular

MIB = 2**20
MIN_NAMED_SAVING = MIB // 100  # bytes per core; smaller savings are not worth a setting


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSlice:
    """A slice of a convolution: output range along one image dim, input range that the slice reads, and plan."""

    axis: SliceAxis
    output: Interval
    input: Interval
    plan: ConvPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvPlan(Tabular):
    """The complete plan of a convolution on a machine. The execution follows the plan exactly.

    Without `slices`, input and output are sharded on the cores as `sharding` describes. With `slices`, input and output
    are in global memory: the slices run one after the other, every slice has its own plan, and `sharding`, `blocks` and
    `footprint` describe the largest slice.
    """

    conv: Convolution
    setup: ConvSetup
    grid: Mesh
    sharding: Sharding
    blocks: BlockSizes
    footprint: Footprint
    halo: HaloCounts | None
    ledger: Ledger
    slices: tuple[PlanSlice, ...] = ()

    @property
    def machine(self) -> Machine:
        return self.setup.machine

    @property
    def config(self) -> Conv2dConfig:
        return self.setup.config

    @property
    def compute(self) -> ComputeConfig:
        """Arithmetic settings of this plan. The packer does not accumulate if there are too few inner blocks."""
        packed = uses_packer_accumulation(self.sharding, self.blocks, self.setup)
        return replace(self.setup.compute, packer_l1_acc=packed)

    @property
    def layout(self) -> ShardLayout:
        return self.sharding.layout

    @property
    def halo_runs(self) -> HaloRuns | None:
        """The runs that fill the haloed shards; None for a matmul or a sliced plan (every slice has its own runs)."""
        if self.halo is None or self.slices:
            return None
        return plan_halo_runs(self.conv, self.sharding, self.config.halo_mode)

    @property
    def input_dtype(self) -> DataType:
        return self.setup.dtype

    @property
    def sticks_dtype(self) -> DataType:
        """Number format of the haloed shard."""
        return get_sticks_dtype(self.input_dtype)

    @property
    def partials_dtype(self) -> DataType:
        """Number format of the partial sums between inner blocks."""
        return get_partials_dtype(self.config.dtype, self.compute)

    @property
    def high_water(self) -> int:
        """Peak memory per core of this convolution in bytes."""
        return self.footprint.high_water

    @property
    def capacity(self) -> int:
        """Size of a core's memory in bytes."""
        return self.machine.local_memory

    @property
    def fits(self) -> bool:
        return self.high_water <= self.capacity

    def to_rows(self) -> list[dict[str, Any]]:
        """Return a list with one table row for the plan."""
        return [self.to_dict()]

    def to_dict(self) -> dict[str, Any]:
        """Return layout, cores, memory and moved bytes as a dict of plain values."""
        return {
            "layout": str(self.layout),
            "cores": self.sharding.cores,
            "grid": f"{self.grid.rows}x{self.grid.cols}",
            "slices": len(self.slices),
            "bytes_per_core": self.high_water,
            "capacity": self.capacity,
            "fits": self.fits,
            **asdict(self.ledger),
        }

    @property
    def fit_summary(self) -> str:
        """Whether the plan fits, and the required and available memory, as one line. `explain_fit` adds a remedy."""
        verdict = "fits" if self.fits else "does not fit"
        return f"{self.layout} {verdict}: needs {self.high_water / MIB:.2f} MiB per core, has {self.capacity / MIB:.2f}"


def describe_plan(plan: ConvPlan) -> str:
    """Describe a plan in one line."""
    conv = plan.conv
    kernel, stride = (f"{a}x{b}" for a, b in (conv.kernel, conv.stride))
    return (
        f"{conv.batch} x {conv.height}x{conv.width}, {conv.in_channels} to {conv.out_channels} channels, "
        f"kernel {kernel}, stride {stride}: {plan.layout} on {plan.sharding.cores} cores"
    )


def plan_one(
    conv: Convolution,
    machine: Machine,
    config: Conv2dConfig | None = None,
    compute: ComputeConfig | None = None,
    *,
    layout: ShardLayout | None = None,
    grid: Mesh | None = None,
    input_dtype: DataType | None = None,
    input_layout: Layout = Layout.TILE,
    bias: bool = False,
) -> ConvPlan:
    """Plan a convolution in one layout (default: `config.shard_layout`) on one grid. The plan may not fit."""
    settings = replace(config or Conv2dConfig())
    dtype = input_dtype or settings.dtype
    setup = ConvSetup(
        machine=machine,
        config=settings,
        compute=replace(compute) if compute else choose_default_compute(dtype, settings.weights_dtype),
        grid=grid,
        input_dtype=input_dtype,
        input_layout=input_layout,
        bias=bias,
    )
    chosen = layout or setup.config.shard_layout
    if chosen is None:
        raise TesseraError(
            "plan_one requires a layout", allowed=list(ShardLayout), do="set shard_layout, or use plan_conv2d"
        )
    return plan_layout(conv, chosen, setup)


def plan_layout(conv: Convolution, layout: ShardLayout, setup: ConvSetup) -> ConvPlan:
    """Plan a convolution in one layout. The plan may not fit."""
    sharding = compute_sharding(conv, layout, setup)
    blocks = compute_blocks(conv, sharding, setup)
    halo = None if conv.is_matmul else count_halo(conv, sharding, setup.config.halo_mode)
    return ConvPlan(
        conv=conv,
        setup=setup,
        grid=setup.cores,
        sharding=sharding,
        blocks=blocks,
        footprint=compute_footprint(conv, sharding, blocks, halo.largest if halo else 0, setup),
        halo=halo,
        ledger=predict_ledger(conv, sharding, blocks, halo, setup),
    )


def list_layouts(conv: Convolution, setup: ConvSetup) -> list[ShardLayout]:
    """Return the layouts that the settings allow. WIDTH requires that `act_block_w_div` divides the block width."""
    div = setup.config.act_block_w_div
    if div == 1 or div in list_width_divisors(conv, compute_sharding(conv, ShardLayout.WIDTH, setup)):
        return list(ShardLayout)
    return [layout for layout in ShardLayout if layout != ShardLayout.WIDTH]


def compute_sharding(conv: Convolution, layout: ShardLayout, setup: ConvSetup) -> Sharding:
    """Shard a convolution in a layout with the settings of a setup."""
    config, grid = setup.config, setup.cores
    if setup.input_shards is not None:
        rows, columns = count_shards(setup.input_shards, layout)
        turned = Mesh(grid.cols, grid.rows) if config.transpose_shards else grid
        return keep_shards(conv, layout, turned, rows=rows, columns=columns, shape=setup.input_shards.shape)
    return shard_convolution(
        conv,
        layout,
        grid,
        multiple=max(1, config.act_block_h_override // TILE_SIZE),
        in_alignment=setup.get_alignment(conv, layout),
        transpose_shards=config.transpose_shards,
        whole_grid=grid == config.grid,
    )


def compute_blocks(conv: Convolution, sharding: Sharding, setup: ConvSetup) -> BlockSizes:
    """Choose the block sizes of a sharded convolution with the settings of a setup."""
    config = setup.config
    return choose_blocks(
        conv,
        sharding,
        act_block_h_override=config.act_block_h_override,
        act_block_w_div=config.act_block_w_div,
        full_inner=config.full_inner_dim,
        fp32_accumulation=setup.compute.fp32_dest_acc_en,
    )


def plan_layout_or_default(conv: Convolution, layout: ShardLayout | None, setup: ConvSetup) -> ConvPlan:
    """Plan a convolution in one layout, or in the device's default layout (None). The plan may not fit."""
    return plan_layout(conv, layout, setup) if layout else plan_default_layout(conv, setup)


def plan_default_layout(conv: Convolution, setup: ConvSetup) -> ConvPlan:
    """Plan a convolution in the device's default layout, which has the smallest memory. The plan may not fit.

    Ties go to the first of HEIGHT, BLOCK, WIDTH. BLOCK requires at least as many cores as the grid has columns. WIDTH
    requires that the convolution is not a matmul and that the settings allow it.
    """
    plans = [plan_layout(conv, ShardLayout.HEIGHT, setup)]
    block = plan_layout(conv, ShardLayout.BLOCK, setup)
    if block.sharding.cores >= block.grid.cols:
        plans.append(block)
    if not conv.is_matmul and ShardLayout.WIDTH in list_layouts(conv, setup):
        plans.append(plan_layout(conv, ShardLayout.WIDTH, setup))
    return min(plans, key=lambda plan: plan.footprint.total)


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
    if best is None or best.saves < MIN_NAMED_SAVING:
        return f"{plan.fit_summary}; no setting saves memory{slices_hint}"
    effect = "and makes it fit" if best.fits else "but is not enough"
    return f"{plan.fit_summary}; {best} {effect}{slices_hint}"


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
