"""The plan of one convolution on a core grid: shards, blocks, memory, bytes moved, and whether it fits."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

from tessera.coregrid.config import ComputeConfig, Conv2dConfig, ShardLayout, SliceAxis
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.formats import TILE_SIZE, DataType, Layout
from tessera.coregrid.planning.blocks import BlockSizes, choose_blocks, list_width_divisors
from tessera.coregrid.planning.halo import HaloCounts, HaloRuns, count_halo, plan_halo_runs
from tessera.coregrid.planning.ledger import Ledger, predict_ledger
from tessera.coregrid.planning.memory import Footprint, compute_footprint, get_partials_dtype, get_sticks_dtype
from tessera.coregrid.planning.sharding import Sharding, shard_convolution
from tessera.errors import TesseraError
from tessera.geometry import Interval, Mesh
from tessera.machine.machine import Machine
from tessera.tabular import Tabular

MIB = 2**20
ROW_MAJOR_CHANNEL_ALIGNMENT = 8  # 8 channels in bfloat16 are 16 bytes, one transfer


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvSetup:
    """Machine and settings of a planned convolution: everything except the shape and the shard layout.

    `grid` defaults to the machine's grid, `input_dtype` to the format of the config. `input_layout` is the memory
    layout of the input.
    """

    machine: Machine
    config: Conv2dConfig = field(default_factory=Conv2dConfig)
    compute: ComputeConfig = field(default_factory=ComputeConfig)
    grid: Mesh | None = None
    input_dtype: DataType | None = None
    input_layout: Layout = Layout.TILE
    bias: bool = False

    @property
    def dtype(self) -> DataType:
        """Number format of the input."""
        return self.input_dtype or self.config.dtype

    @property
    def cores(self) -> Mesh:
        """The available cores: the grid of the setup, else the grid that the config requires, else all cores."""
        device, grid = self.machine.workers, self.grid or self.config.grid or self.machine.workers
        if grid.rows > device.rows or grid.cols > device.cols:
            raise TesseraError(
                f"the grid is larger than {self.machine.name}",
                got=f"{grid.rows}x{grid.cols}",
                allowed=f"up to {device.rows}x{device.cols}",
            )
        return grid

    def get_alignment(self, conv: Convolution, layout: ShardLayout) -> int:
        """Return the multiple to which input channels are padded: 32 for tiles, WIDTH and matmuls, else 8 (default)."""
        if layout == ShardLayout.WIDTH or self.input_layout is Layout.TILE:
            return TILE_SIZE
        if self.config.input_channels_alignment != TILE_SIZE:
            return self.config.input_channels_alignment
        return TILE_SIZE if conv.is_matmul else ROW_MAJOR_CHANNEL_ALIGNMENT

    def with_layout(self, layout: ShardLayout) -> ConvSetup:
        """Return a copy whose config requires the layout and the cores, so that `conv2d` makes an equal plan."""
        config = replace(self.config, shard_layout=layout)
        return replace(
            self, grid=None, config=config if self.cores == self.machine.workers else config.with_grid(self.cores)
        )


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
        return self.setup.compute

    @property
    def bias(self) -> bool:
        return self.setup.bias

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
    def input_layout(self) -> Layout:
        return self.setup.input_layout

    @property
    def weights_dtype(self) -> DataType:
        return self.config.weights_dtype

    @property
    def output_dtype(self) -> DataType:
        return self.config.dtype

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
            **{field.name: getattr(self.ledger, field.name) for field in fields(self.ledger)},
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
    setup = ConvSetup(
        machine=machine,
        config=replace(config or Conv2dConfig()),
        compute=replace(compute or ComputeConfig()),
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
    config = setup.config
    sharding = compute_sharding(conv, layout, setup)
    blocks = compute_blocks(conv, sharding, setup)
    halo = None if conv.is_matmul else count_halo(conv, sharding, config.halo_mode)
    memory = compute_memory(conv, sharding, blocks, halo.largest if halo else 0, setup)
    ledger = predict_ledger(conv, sharding, blocks, halo, config, input_dtype=setup.dtype, bias=setup.bias)
    return ConvPlan(
        conv=conv,
        setup=setup,
        grid=setup.cores,
        sharding=sharding,
        blocks=blocks,
        footprint=memory,
        halo=halo,
        ledger=ledger,
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


def compute_memory(
    conv: Convolution, sharding: Sharding, blocks: BlockSizes, halo_sticks: int, setup: ConvSetup
) -> Footprint:
    """Compute the memory of a sharded convolution with the settings of a setup."""
    return compute_footprint(
        conv,
        sharding,
        blocks,
        halo_sticks,
        setup.config,
        setup.compute,
        input_dtype=setup.dtype,
        input_layout=setup.input_layout,
        bias=setup.bias,
    )


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
