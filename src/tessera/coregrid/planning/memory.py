"""What a convolution takes of every core's memory, buffer by buffer, before anything runs."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.coregrid.config import ComputeConfig, Conv2dConfig
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.formats import TILE, DataType, Layout, bfloat16, float32
from tessera.coregrid.planning.blocks import Blocks
from tessera.coregrid.planning.sharding import Sharding, ShardLayout

SCRATCH = 64  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Bytes of one core: the circular buffers, the output shard, the haloed input, and the input shard before it.

    Every core sets aside as much as the one that needs most. A matmul has no haloed copy: its `halo` is the input
    shard itself, read in place, and its `input` is 0.
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
        """The circular buffers alone; they exist while the convolution runs."""
        parts = (self.weights, self.act, self.act_tilized, self.act_row_major, self.bias, self.partials, self.scratch)
        return sum(parts)

    @property
    def total(self) -> int:
        """What the convolution itself takes: buffers, output and haloed input."""
        return self.buffers + self.output + self.halo

    @property
    def high_water(self) -> int:
        """The most that is allocated at once: while the halo is made, or while the convolution runs.

        The input shard is there until the haloed one is made, and to the end unless `deallocate_activation` frees it.
        """
        return max(self.input + self.halo, self.total + (self.input if self.input_kept else 0))

    def parts(self) -> dict[str, int]:
        """Every buffer that takes something, by its name, in the order in which they are allocated."""
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


def sticks_dtype(dtype: DataType) -> DataType:
    """In what format sticks lie row by row: block formats exist in tiles only, so theirs are 16 bits wide."""
    return float32 if dtype is float32 else bfloat16


def partials_dtype(dtype: DataType, compute: ComputeConfig) -> DataType:
    """In what format partial sums wait in a core's memory: the output's, unless the packer adds them up there.

    An output of 32 bits is accumulated in 32 bits.
    """
    if not compute.packer_l1_acc or dtype is float32:
        return dtype
    return float32 if compute.fp32_dest_acc_en else bfloat16


def footprint(
    conv: Convolution,
    sharding: Sharding,
    blocks: Blocks,
    halo_sticks: int,
    config: Conv2dConfig,
    compute: ComputeConfig,
    *,
    input_dtype: DataType | None = None,
    input_layout: Layout = Layout.TILE,
    bias: bool = False,
) -> Footprint:
    """The chip's own reckoning, tile by tile; `halo_sticks` are those of the largest haloed shard."""
    dtype, given = config.dtype, input_dtype or config.dtype
    stored = sticks_dtype(given)
    act = blocks.act_height * blocks.act_width
    weights = blocks.out_width * blocks.act_width * config.weights_dtype.tile_bytes
    if sharding.layout == ShardLayout.HEIGHT and blocks.height_blocks > 1:
        weights *= conv.kernel[0]  # all of them stay, since every block of the height needs them again
    elif config.enable_weights_double_buffer:
        weights *= 2
    act_tile = stored if sharding.layout == ShardLayout.HEIGHT else dtype
    row_major = 0
    if sharding.layout == ShardLayout.BLOCK and stored is not dtype:
        row_major = act * stored.tile_bytes
    elif sharding.layout == ShardLayout.WIDTH:
        row_major = 2 * blocks.act_width * stored.tile_bytes
    partial = partials_dtype(dtype, compute)
    aliased = config.output_layout is Layout.TILE and partial is dtype
    shard = given.bytes_of(sharding.in_height, sharding.in_width, input_layout)
    return Footprint(
        weights=weights,
        act=act * act_tile.tile_bytes * (2 if config.enable_act_double_buffer else 1),
        act_tilized=act * dtype.tile_bytes,
        act_row_major=row_major,
        bias=blocks.out_width * config.weights_dtype.tile_bytes if bias else 0,
        partials=0 if aliased else blocks.act_height * blocks.out_width * partial.tile_bytes,
        scratch=SCRATCH,
        output=dtype.bytes_of(sharding.out_height, blocks.out_width * TILE, config.output_layout),
        halo=shard if conv.is_matmul else stored.bytes_of(halo_sticks, sharding.in_width, Layout.ROW_MAJOR),
        input=0 if conv.is_matmul else shard,
        input_kept=not config.deallocate_activation,
    )
