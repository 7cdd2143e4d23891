"""One convolution planned on a grid of cores: shards, blocks, memory and bytes, and whether it fits, before it runs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tessera.coregrid.config import ComputeConfig, Conv2dConfig, SliceAxis
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.formats import TILE, DataType, Layout
from tessera.coregrid.planning.blocks import Blocks, blocks_of, width_parts
from tessera.coregrid.planning.haloing import HaloCount, halo_count, haloing_of
from tessera.coregrid.planning.ledger import Ledger, predicted_ledger
from tessera.coregrid.planning.memory import Footprint, footprint, partials_dtype, sticks_dtype
from tessera.coregrid.planning.sharding import Sharding, ShardLayout, sharding_of
from tessera.coregrid.planning.sticks import Haloing
from tessera.errors import TesseraError
from tessera.geometry import Interval, Mesh
from tessera.machine.machine import Machine

MB = 2**20
ROW_MAJOR_ALIGNMENT = 8  # channels: sixteen bytes of bfloat16, what a core moves at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Where and how a convolution is planned: everything but its shape and its layout.

    `grid` is the machine's if none is given, `input_dtype` the config's; `input_layout` is how the input lies.
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
        """The format of the input."""
        return self.input_dtype or self.config.dtype

    @property
    def cores(self) -> Mesh:
        """The cores that may take part: those that are given, those that the config insists on, or all."""
        device, grid = self.machine.workers, self.grid or self.config.grid or self.machine.workers
        if grid.rows > device.rows or grid.cols > device.cols:
            raise TesseraError(
                f"a grid larger than {self.machine.name}",
                got=f"{grid.rows}x{grid.cols}",
                allowed=f"up to {device.rows}x{device.cols}",
            )
        return grid

    def alignment(self, conv: Convolution, layout: ShardLayout) -> int:
        """To how many channels a stick is padded: a tile's, or fewer where it lies row by row; WIDTH cuts tiles."""
        if layout == ShardLayout.WIDTH or self.input_layout is Layout.TILE:
            return TILE
        if self.config.input_channels_alignment != TILE:
            return self.config.input_channels_alignment
        return TILE if conv.is_matmul else ROW_MAJOR_ALIGNMENT

    def laid(self, layout: ShardLayout) -> Setup:
        """The same with the layout and the cores in the config: a call of `conv2d` with it alone comes to this plan."""
        config = replace(self.config, shard_layout=layout)
        return replace(self, grid=None, config=config if self.cores == self.machine.workers else config.on(self.cores))


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A part of the output and of the input that it reads, along one dim of the image, with a plan of its own."""

    axis: SliceAxis
    output: Interval
    input: Interval
    plan: ConvPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvPlan:
    """What a convolution does on a machine, to be executed to the letter.

    The input lies sharded over the grid as `sharding` says, the output comes to lie so. If there are `slices`, it goes
    through global memory instead: each slice has a plan of its own, one after the other, and sharding, blocks and
    memory here are those of the slice that takes most.
    """

    conv: Convolution
    setup: Setup
    grid: Mesh
    sharding: Sharding
    blocks: Blocks
    footprint: Footprint
    halo: HaloCount | None
    ledger: Ledger
    slices: tuple[Slice, ...] = ()

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
    def haloing(self) -> Haloing | None:
        """The runs that make the haloed shards; None for a matmul, which has none, and for slices, which have own."""
        if self.halo is None or self.slices:
            return None
        return haloing_of(self.conv, self.sharding, self.config.halo_mode)

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
        """In what format the haloed shard lies."""
        return sticks_dtype(self.input_dtype)

    @property
    def partials_dtype(self) -> DataType:
        """In what format partial sums wait between inner blocks."""
        return partials_dtype(self.config.dtype, self.compute)

    @property
    def high_water(self) -> int:
        """The most bytes that any core has allocated for this convolution at once."""
        return self.footprint.high_water

    @property
    def have(self) -> int:
        """The bytes of a core's memory."""
        return self.machine.local_memory

    @property
    def fits(self) -> bool:
        return self.high_water <= self.have

    @property
    def reason(self) -> str:
        """Whether it fits, in one line; `tessera.coregrid.planning.knobs.advice` adds what would save how much."""
        verdict = "fits" if self.fits else "does not fit"
        return f"{self.layout} {verdict}: needs {self.high_water / MB:.2f} MB per core, has {self.have / MB:.2f}"


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
    """Plan a convolution in one layout (the config's if none is given) on one grid; it may turn out not to fit."""
    setup = Setup(
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
            "a plan needs a layout", allowed=list(ShardLayout), do="set shard_layout, or use plan_conv2d"
        )
    return planned(conv, chosen, setup)


def planned(conv: Convolution, layout: ShardLayout, setup: Setup) -> ConvPlan:
    """Plan a convolution in one layout; it may turn out not to fit."""
    config = setup.config
    sharding = sharded(conv, layout, setup)
    blocks = blocked(conv, sharding, setup)
    halo = None if conv.is_matmul else halo_count(conv, sharding, config.halo_mode)
    memory = memory_of(conv, sharding, blocks, halo.largest if halo else 0, setup)
    ledger = predicted_ledger(conv, sharding, blocks, halo, config, input_dtype=setup.dtype, bias=setup.bias)
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


def layouts_for(conv: Convolution, setup: Setup) -> list[ShardLayout]:
    """The layouts that the settings allow: `act_block_w_div`, which WIDTH alone reads, may not divide its block."""
    div = setup.config.act_block_w_div
    if div == 1 or div in width_parts(conv, sharded(conv, ShardLayout.WIDTH, setup)):
        return list(ShardLayout)
    return [layout for layout in ShardLayout if layout != ShardLayout.WIDTH]


def sharded(conv: Convolution, layout: ShardLayout, setup: Setup) -> Sharding:
    """Which cores have what."""
    config, grid = setup.config, setup.cores
    return sharding_of(
        conv,
        layout,
        grid,
        multiple=max(1, config.act_block_h_override // TILE),
        in_alignment=setup.alignment(conv, layout),
        transpose_shards=config.transpose_shards,
        whole_grid=grid == config.grid,
    )


def blocked(conv: Convolution, sharding: Sharding, setup: Setup) -> Blocks:
    """The blocks in which the cores work through it."""
    config = setup.config
    return blocks_of(
        conv,
        sharding,
        act_block_h_override=config.act_block_h_override,
        act_block_w_div=config.act_block_w_div,
        full_inner=config.full_inner_dim,
        fp32_accumulation=setup.compute.fp32_dest_acc_en,
    )


def memory_of(conv: Convolution, sharding: Sharding, blocks: Blocks, halo_sticks: int, setup: Setup) -> Footprint:
    """The memory that it takes."""
    return footprint(
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
