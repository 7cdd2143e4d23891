"""What a convolution takes of every core's memory, buffer by buffer, before anything runs."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.coregrid.blocks import Blocks
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.formats import TILE, DataType, Layout, bfloat16, float32
from tessera.coregrid.sharding import Sharding

SCRATCH = 64  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Bytes of one core: the circular buffers, the output shard, the haloed input."""

    weights: int
    act: int
    act_tilized: int
    act_row_major: int
    bias: int
    partials: int
    scratch: int
    output: int
    halo: int

    @property
    def buffers(self) -> int:
        """The circular buffers alone; they exist while the convolution runs."""
        parts = (self.weights, self.act, self.act_tilized, self.act_row_major, self.bias, self.partials, self.scratch)
        return sum(parts)

    @property
    def total(self) -> int:
        return self.buffers + self.output + self.halo


def footprint(
    conv: Convolution,
    sharding: Sharding,
    blocks: Blocks,
    halo_sticks: int,
    *,
    dtype: DataType = bfloat16,
    weights_dtype: DataType = bfloat16,
    output_layout: Layout = Layout.TILE,
    bias: bool = False,
    act_double_buffer: bool = False,
    weights_double_buffer: bool = False,
    fp32_accumulation: bool = False,
    packer_l1_acc: bool = False,
) -> Footprint:
    """The chip's own reckoning, tile by tile."""
    stored = bfloat16 if dtype.is_block else dtype  # row-major sticks and untilized activations are never in blocks
    tile, weights_tile = dtype.tile_bytes, weights_dtype.tile_bytes
    act = blocks.act_height * blocks.act_width
    weights = blocks.out_width * blocks.act_width * weights_tile
    if sharding.layout == "HEIGHT" and blocks.height_blocks > 1:
        weights *= conv.kernel[0]  # all of them stay, since every block of the height needs them again
    elif weights_double_buffer:
        weights *= 2
    row_major = 0
    if sharding.layout == "BLOCK" and stored is not dtype:
        row_major = act * stored.tile_bytes
    elif sharding.layout == "WIDTH":
        row_major = 2 * blocks.act_width * stored.tile_bytes
    partial = float32 if fp32_accumulation and packer_l1_acc else bfloat16 if dtype.is_block else dtype
    aliased = output_layout is Layout.TILE and partial is dtype
    out_rows = sharding.out_height
    return Footprint(
        weights=weights,
        act=act * stored.tile_bytes * (2 if act_double_buffer else 1),
        act_tilized=act * tile,
        act_row_major=row_major,
        bias=blocks.out_width * weights_tile if bias else 0,
        partials=0 if aliased else blocks.act_height * blocks.out_width * partial.tile_bytes,
        scratch=SCRATCH,
        output=dtype.bytes_of(out_rows, blocks.out_width * TILE, output_layout),
        halo=stored.bytes_of(halo_sticks, sharding.in_width, Layout.ROW_MAJOR),
    )
