"""Split the sticks and channels of a convolution over the cores of a grid, and the shard of a core into blocks."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.coregrid.config import ShardLayout
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.formats import TILE_SIZE
from tessera.errors import TesseraError
from tessera.geometry import Interval, Mesh


def round_up(value: int, multiple: int) -> int:
    """Round a value up to a multiple.

    >>> round_up(33, 32)
    64
    """
    return -(-value // multiple) * multiple


def choose_core_count(tiles: int, most: int, multiple: int = 1) -> int:
    """Return the largest number of cores up to `most` such that every core receives tiles.

    Every core receives an equal number of tiles (the last core may receive fewer), a multiple of `multiple`.

    >>> choose_core_count(98, 64)
    49
    >>> choose_core_count(7, 64)
    7
    """
    for cores in range(most, 0, -1):
        padded = round_up(tiles, cores * multiple)
        if padded - tiles < padded // cores:
            return cores
    return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """Split of a convolution: sticks over `rows`, input channels over `columns`, output channels over `out_columns`.

    Rows and columns are rows and columns of cores: HEIGHT has one column, WIDTH has one row. Heights (in sticks) and
    widths (in channels) are sizes of one shard, including padding.
    """

    layout: ShardLayout
    rows: int
    columns: int
    out_columns: int
    in_height: int
    out_height: int
    in_width: int
    out_width: int

    @property
    def cores(self) -> int:
        """Number of cores that hold a shard of the input or output."""
        return self.rows * max(self.columns, self.out_columns)

    def split_inputs(self, sticks: int) -> list[Interval]:
        """Return the range of input sticks of each row of cores. The last ranges may be shorter or empty."""
        return _split_sticks(sticks, self.rows, self.in_height)

    def split_outputs(self, sticks: int) -> list[Interval]:
        """Return the range of output sticks of each row of cores. The last ranges may be shorter or empty."""
        return _split_sticks(sticks, self.rows, self.out_height)


def count_max_rows(layout: ShardLayout, grid: Mesh, *, transpose_shards: bool = False) -> int:
    """Return the maximum number of rows of cores over which a layout can split the sticks."""
    if layout == ShardLayout.HEIGHT:
        return grid.size
    if layout == ShardLayout.WIDTH:
        return 1
    return grid.cols if transpose_shards else grid.rows


def shard_convolution(
    conv: Convolution,
    layout: ShardLayout,
    grid: Mesh,
    *,
    multiple: int = 1,
    in_alignment: int = TILE_SIZE,
    transpose_shards: bool = False,
    whole_grid: bool = False,
) -> Sharding:
    """Shard a convolution in a layout on a grid, with the device's own sharding rule.

    `multiple` is the height of an activation block in tiles. It affects the number of cores, not the height of the
    shards. BLOCK splits the sticks over the rows of the grid and the channels over its columns; with
    `transpose_shards`, vice versa. With `whole_grid`, all cores of the grid are used, even if some shards are empty.
    """
    tiles = -(-conv.output_sticks // TILE_SIZE)
    in_units, out_tiles = -(-conv.in_channels // in_alignment), -(-conv.out_channels // TILE_SIZE)
    down = count_max_rows(layout, grid, transpose_shards=transpose_shards)
    across = grid.size // down
    rows = down if whole_grid else choose_core_count(tiles, down, multiple)
    columns = across if whole_grid else choose_core_count(in_units, across)
    out_columns = choose_core_count(out_tiles, across)
    if conv.is_matmul and layout == ShardLayout.BLOCK and not whole_grid:
        columns = out_columns = max(d for d in range(1, across + 1) if in_units % d == 0 and out_tiles % d == 0)
    return Sharding(
        layout=ShardLayout(layout),
        rows=rows,
        columns=columns,
        out_columns=out_columns,
        in_height=round_up(conv.input_sticks, rows * TILE_SIZE) // rows,
        out_height=round_up(conv.output_sticks, rows * TILE_SIZE) // rows,
        in_width=round_up(conv.in_channels, columns * in_alignment) // columns,
        out_width=round_up(conv.out_channels, out_columns * TILE_SIZE) // out_columns,
    )


def keep_shards(
    conv: Convolution,
    layout: ShardLayout,
    grid: Mesh,
    *,
    rows: int,
    columns: int,
    shape: tuple[int, int],
) -> Sharding:
    """Shard a convolution as its input: shards of `shape` in `rows` and `columns`. The output keeps the rows."""
    out_tiles = -(-conv.out_channels // TILE_SIZE)
    across = {ShardLayout.HEIGHT: 1, ShardLayout.WIDTH: grid.size}.get(layout, grid.cols)
    out_columns = columns if conv.is_matmul else choose_core_count(out_tiles, across)
    return Sharding(
        layout=layout,
        rows=rows,
        columns=columns,
        out_columns=out_columns,
        in_height=shape[0],
        out_height=round_up(conv.output_sticks, rows * TILE_SIZE) // rows,
        in_width=shape[1],
        out_width=round_up(conv.out_channels, out_columns * TILE_SIZE) // out_columns,
    )


def _split_sticks(sticks: int, rows: int, height: int) -> list[Interval]:
    return [Interval(min(row * height, sticks), min((row + 1) * height, sticks)) for row in range(rows)]


# Sub-block sizes (height, width) in tiles, in order of preference.
SUB_BLOCK_SIZES = (
    (2, 4), (4, 2), (1, 8), (8, 1), (1, 7), (7, 1), (2, 3), (3, 2), (1, 6), (6, 1), (1, 5), (5, 1),
    (2, 2), (1, 4), (4, 1), (1, 3), (3, 1), (1, 2), (2, 1), (1, 1),
)  # fmt: skip
REGISTER_TILES = 8  # tiles in the destination registers of a core; half of them with 32-bit accumulation


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSizes:
    """Sizes of activation blocks, output blocks and sub-blocks in tiles, and the number of height and inner blocks.

    A height block is a range of a core's output sticks, an inner block a range of the inner dim of the matrix product.
    """

    act_height: int
    act_width: int
    out_width: int
    height_blocks: int
    inner_blocks: int
    sub_height: int
    sub_width: int


def choose_blocks(
    conv: Convolution,
    sharding: Sharding,
    *,
    act_block_h_override: int = 0,
    act_block_w_div: int = 1,
    full_inner: bool = False,
    fp32_accumulation: bool = False,
) -> BlockSizes:
    """Choose the block sizes of a sharded convolution with the device's own rule.

    `act_block_h_override` is the requested block height in sticks; it is rounded down to a divisor of the shard height.
    """
    if act_block_h_override % TILE_SIZE:
        raise TesseraError("act_block_h_override must be a multiple of 32", got=act_block_h_override)
    shard = sharding.out_height // TILE_SIZE
    height = shard
    if act_block_h_override:
        height = max(d for d in range(1, min(shard, act_block_h_override // TILE_SIZE) + 1) if shard % d == 0)
    kernel_h, kernel_w = conv.kernel
    if sharding.layout == ShardLayout.HEIGHT:
        width, inner = round_up(sharding.in_width * kernel_w, TILE_SIZE) // TILE_SIZE, kernel_h
    elif sharding.layout == ShardLayout.BLOCK:
        taps = kernel_w * (kernel_h if full_inner else 1)
        width, inner = round_up(sharding.in_width * taps, TILE_SIZE) // TILE_SIZE, (1 if full_inner else kernel_h)
    else:
        whole = sharding.in_width * kernel_h * kernel_w // TILE_SIZE
        if whole % act_block_w_div:
            raise TesseraError(
                "act_block_w_div must divide the width of the activation block in tiles",
                got=act_block_w_div,
                allowed=list_width_divisors(conv, sharding),
            )
        width, inner = whole // act_block_w_div, act_block_w_div
    out_width = sharding.out_width // TILE_SIZE
    sub_height, sub_width = choose_sub_block(
        height, out_width, REGISTER_TILES // 2 if fp32_accumulation else REGISTER_TILES
    )
    return BlockSizes(
        act_height=height,
        act_width=width,
        out_width=out_width,
        height_blocks=shard // height,
        inner_blocks=inner * sharding.columns if sharding.layout != ShardLayout.HEIGHT else inner,
        sub_height=sub_height,
        sub_width=sub_width,
    )


def list_width_divisors(conv: Convolution, sharding: Sharding) -> list[int]:
    """Return the allowed values of `act_block_w_div`: divisors of the activation block width in tiles (WIDTH)."""
    tiles = sharding.in_width * conv.kernel[0] * conv.kernel[1] // TILE_SIZE
    return [parts for parts in range(1, tiles + 1) if tiles % parts == 0]


def choose_sub_block(height: int, width: int, most: int = REGISTER_TILES) -> tuple[int, int]:
    """Return the preferred sub-block size in tiles for an output block of `height` x `width` tiles.

    A sub-block divides the output block, has at most `most` tiles, and is either one row high or as wide as the block.

    >>> choose_sub_block(4, 4), choose_sub_block(7, 2), choose_sub_block(4, 4, most=4)
    ((2, 4), (1, 2), (1, 4))
    """
    for rows, columns in SUB_BLOCK_SIZES:
        fits = rows * columns <= most and height % rows == 0 and width % columns == 0
        if fits and (columns == width or rows == 1):
            return rows, columns
    return 1, 1
