"""The blocks in which a core works through its shard, in tiles, and the sub-blocks that its registers hold."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tessera.coregrid.convolution import Convolution
from tessera.coregrid.formats import TILE, DataType
from tessera.coregrid.planning.sharding import Sharding, ShardLayout, round_up
from tessera.errors import TesseraError

# Heights and widths of sub-blocks in tiles, in the order in which they are tried.
SUB_BLOCKS = (
    (2, 4), (4, 2), (1, 8), (8, 1), (1, 7), (7, 1), (2, 3), (3, 2), (1, 6), (6, 1), (1, 5), (5, 1),
    (2, 2), (1, 4), (4, 1), (1, 3), (3, 1), (1, 2), (2, 1), (1, 1),
)  # fmt: skip
REGISTERS = 8  # tiles that a core computes at once, half of them with 32-bit accumulation


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Sizes in tiles: of an activation block, of an output block; and how many there are along each dim."""

    act_height: int
    act_width: int
    out_width: int
    height_blocks: int
    inner_blocks: int
    sub_height: int
    sub_width: int


def blocks_of(
    conv: Convolution,
    sharding: Sharding,
    *,
    act_block_h_override: int = 0,
    act_block_w_div: int = 1,
    full_inner: bool = False,
    fp32_accumulation: bool = False,
) -> Blocks:
    """The chip's own rule; `act_block_h_override` is in sticks, and falls to the next divisor of the shard."""
    if act_block_h_override % TILE:
        raise TesseraError("act_block_h_override is a multiple of 32", got=act_block_h_override)
    shard = sharding.out_height // TILE
    height = shard
    if act_block_h_override and sharding.layout != ShardLayout.WIDTH:
        height = max(d for d in range(1, min(shard, act_block_h_override // TILE) + 1) if shard % d == 0)
    kernel_h, kernel_w = conv.kernel
    if sharding.layout == ShardLayout.HEIGHT:
        width, inner = round_up(sharding.in_width * kernel_w, TILE) // TILE, kernel_h
    elif sharding.layout == ShardLayout.BLOCK:
        taps = kernel_w * (kernel_h if full_inner else 1)
        width, inner = round_up(sharding.in_width * taps, TILE) // TILE, (1 if full_inner else kernel_h)
    else:
        whole = sharding.in_width * kernel_h * kernel_w // TILE
        if whole % act_block_w_div:
            raise TesseraError(
                "act_block_w_div divides the width of the activation block into whole tiles",
                got=act_block_w_div,
                allowed=width_parts(conv, sharding),
            )
        width, inner = whole // act_block_w_div, act_block_w_div
    out_width = sharding.out_width // TILE
    sub_height, sub_width = sub_block(height, out_width, REGISTERS // 2 if fp32_accumulation else REGISTERS)
    return Blocks(
        act_height=height,
        act_width=width,
        out_width=out_width,
        height_blocks=shard // height,
        inner_blocks=inner * sharding.columns if sharding.layout != ShardLayout.HEIGHT else inner,
        sub_height=sub_height,
        sub_width=sub_width,
    )


def width_parts(conv: Convolution, sharding: Sharding) -> list[int]:
    """What `act_block_w_div` may be: into how many parts of whole tiles the activation block of WIDTH divides."""
    tiles = sharding.in_width * conv.kernel[0] * conv.kernel[1] // TILE
    return [parts for parts in range(1, tiles + 1) if tiles % parts == 0]


def output_block(conv: Convolution, free: int, dtype: DataType) -> tuple[int, int]:
    """The largest block of the output, in sticks and channels, that a core can make by itself from global memory.

    Beside it lie the activations and the weights that it needs, so `(bHo * bWo + K * (bHo + bWo)) * size < free` with
    `K = Kh * Kw * Ci`. Both sides are whole tiles; of two blocks that are as large the wider one takes fewer weights.

    >>> from tessera.coregrid.formats import bfloat16
    >>> conv = Convolution(batch=2, height=16, width=16, in_channels=32, out_channels=64, kernel=(3, 3), stride=(2, 2))
    >>> output_block(conv, 100_000, bfloat16)
    (64, 64)
    """
    size, inner = dtype.tile_bytes / TILE**2, conv.kernel[0] * conv.kernel[1] * conv.in_channels
    found = (0, 0)
    for width in range(TILE, round_up(conv.out_channels, TILE) + 1, TILE):
        most = (free / size - inner * width) / (width + inner)  # the height has to be below it
        height = min(round_up(conv.outputs, TILE), (math.ceil(most) - 1) // TILE * TILE)
        if height > 0:
            found = max(found, (height, width), key=lambda block: (block[0] * block[1], block[1]))
    if found == (0, 0):
        raise TesseraError(
            "not even a tile of the output fits with what it needs",
            got=f"{math.ceil((TILE**2 + 2 * inner * TILE) * size):,} bytes",
            allowed=f"less than {free:,}",
            do="cut the inner dim as well, as every sharded layout does",
        )
    return found


def sub_block(height: int, width: int, most: int = REGISTERS) -> tuple[int, int]:
    """The first sub-block that divides an output block and fits the registers; it is as wide as the block, or a row.

    >>> sub_block(4, 4), sub_block(7, 2), sub_block(4, 4, most=4)
    ((2, 4), (1, 2), (1, 4))
    """
    for rows, columns in SUB_BLOCKS:
        fits = rows * columns <= most and height % rows == 0 and width % columns == 0
        if fits and (columns == width or rows == 1):
            return rows, columns
    return 1, 1
