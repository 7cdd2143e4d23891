"""Memory that a convolution requires on every core, computed for every buffer before execution."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tessera.coregrid.config import ComputeConfig, ShardLayout
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.formats import TILE_SIZE, DataType, Layout, bfloat16, float32
from tessera.coregrid.planning.setup import ConvSetup
from tessera.coregrid.planning.sharding import BlockSizes, Sharding
from tessera.errors import TesseraError

SCRATCH_BYTES = 64


class OutOfMemory(TesseraError):
    """Error: a buffer does not fit the memory of a core or the memory banks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Memory of a convolution in bytes per core: circular buffers, output shard, haloed input, and input shard.

    Every core allocates the size of the largest shard. A matmul has no haloed copy: its `halo` is the input shard,
    which is read in place, and its `input` is 0.
    """

    weights: int
    act: int
    act_tilized: int
    act_row_major: int
    bias: int
    partials: int
    scratch: int
    output: int
    halo: int
    input: int = 0
    input_kept: bool = False

    @property
    def buffers(self) -> int:
        """Total bytes of the circular buffers, which are allocated while the convolution runs."""
        parts = (self.weights, self.act, self.act_tilized, self.act_row_major, self.bias, self.partials, self.scratch)
        return sum(parts)

    @property
    def total(self) -> int:
        """Total bytes of circular buffers, output shard and haloed input."""
        return self.buffers + self.output + self.halo

    @property
    def high_water(self) -> int:
        """Peak memory in bytes: the maximum during the halo exchange and during the convolution.

        With `deallocate_activation`, the input shard is freed after the halo exchange; else it stays allocated.
        """
        return max(self.input + self.halo, self.total + (self.input if self.input_kept else 0))

    def get_buffer_sizes(self) -> dict[str, int]:
        """Return the size in bytes of every non-empty buffer by name, in allocation order."""
        named = {
            "input": self.input,
            "haloed input": self.halo,
            "output": self.output,
            "weights": self.weights,
            "act": self.act,
            "act tilized": self.act_tilized,
            "act row major": self.act_row_major,
            "bias": self.bias,
            "partials": self.partials,
            "scratch": self.scratch,
        }
        return {name: size for name, size in named.items() if size}


def get_sticks_dtype(dtype: DataType) -> DataType:
    """Return the format of row-major sticks: `dtype`, or bfloat16 for block formats, which require the tile layout."""
    return float32 if dtype is float32 else bfloat16


def uses_packer_accumulation(sharding: Sharding, blocks: BlockSizes, setup: ConvSetup) -> bool:
    """Return whether the packer adds partial sums in memory: if it is enabled and there are enough inner blocks."""
    count = blocks.inner_blocks * (sharding.out_columns if sharding.layout == ShardLayout.BLOCK else 1)
    return setup.compute.packer_l1_acc and count > (1 if setup.bias else 2)


def get_partials_dtype(dtype: DataType, compute: ComputeConfig) -> DataType:
    """Return the format of partial sums in a core's memory, for the output format `dtype`.

    The format is `dtype`, unless the packer accumulates in the precision of the registers. A float32 output is always
    accumulated in float32.
    """
    if not compute.packer_l1_acc or dtype is float32:
        return dtype
    return float32 if compute.fp32_dest_acc_en else bfloat16


def compute_footprint(
    conv: Convolution,
    sharding: Sharding,
    blocks: BlockSizes,
    halo_sticks: int,
    setup: ConvSetup,
) -> Footprint:
    """Compute the per-core memory of a convolution with the device's own allocation formula.

    `halo_sticks` is the number of sticks in the largest input shard including its halo.
    """
    config, dtype = setup.config, setup.config.dtype
    stored = get_sticks_dtype(setup.dtype)
    act = blocks.act_height * blocks.act_width
    weights = blocks.out_width * blocks.act_width * config.weights_dtype.tile_bytes
    if sharding.layout == ShardLayout.HEIGHT and blocks.height_blocks > 1:
        weights *= conv.kernel[0]  # weights of all kernel rows stay, because every height block reads them
    elif config.enable_weights_double_buffer:
        weights *= 2
    act_tile = stored if sharding.layout == ShardLayout.HEIGHT else dtype
    row_major = 0
    if sharding.layout == ShardLayout.BLOCK and stored is not dtype:
        row_major = act * stored.tile_bytes
    elif sharding.layout == ShardLayout.WIDTH:
        row_major = 2 * blocks.act_width * stored.tile_bytes
    packed = uses_packer_accumulation(sharding, blocks, setup)
    partial = get_partials_dtype(dtype, replace(setup.compute, packer_l1_acc=packed))
    # a single column of cores has nothing to multicast, and multiplies the tilized block itself
    alone = sharding.layout != ShardLayout.HEIGHT and sharding.columns == sharding.out_columns == 1
    aliased = config.output_layout is Layout.TILE and partial is dtype
    shard = setup.dtype.count_bytes(sharding.in_height, sharding.in_width, setup.input_layout)
    return Footprint(
        weights=weights,
        act=0 if alone else act * act_tile.tile_bytes * (2 if config.enable_act_double_buffer else 1),
        act_tilized=act * dtype.tile_bytes,
        act_row_major=row_major,
        bias=blocks.out_width * config.weights_dtype.tile_bytes if setup.bias else 0,
        partials=0 if aliased else blocks.act_height * blocks.out_width * partial.tile_bytes,
        scratch=SCRATCH_BYTES,
        output=dtype.count_bytes(sharding.out_height, blocks.out_width * TILE_SIZE, config.output_layout),
        halo=shard if conv.is_matmul else stored.count_bytes(halo_sticks, sharding.in_width, Layout.ROW_MAJOR),
        input=0 if conv.is_matmul else shard,
        input_kept=not (config.deallocate_activation or setup.copies_input),
    )
