"""Split the sticks and channels of a convolution over the cores of a grid."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.coregrid.config import ShardLayout
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.formats import TILE_SIZE
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


def count_max_rows(layout: ShardLayout, grid: Mesh, *, transpose_shards: bool = True) -> int:
    """Return the maximum number of rows of cores over which a layout can split the sticks."""
    if layout == ShardLayout.HEIGHT:
        return grid.size
    if layout == ShardLayout.WIDTH:
        return 1
    return grid.rows if transpose_shards else grid.cols


def shard_convolution(
    conv: Convolution,
    layout: ShardLayout,
    grid: Mesh,
    *,
    multiple: int = 1,
    in_alignment: int = TILE_SIZE,
    transpose_shards: bool = True,
    whole_grid: bool = False,
) -> Sharding:
    """Shard a convolution in a layout on a grid, with the device's own sharding rule.

    `multiple` is the height of an activation block in tiles. It affects the number of cores, not the height of the
    shards. BLOCK splits the sticks over the rows of the grid and the channels over its columns; without
    `transpose_shards`, vice versa. With `whole_grid`, all cores of the grid are used, even if some shards are empty.
    """
    tiles = -(-conv.output_sticks // TILE_SIZE)
    in_tiles, out_tiles = -(-conv.in_channels // TILE_SIZE), -(-conv.out_channels // TILE_SIZE)
    down = count_max_rows(layout, grid, transpose_shards=transpose_shards)
    across = grid.size // down
    rows, columns = (
        (down, across)
        if whole_grid
        else (choose_core_count(tiles, down, multiple), choose_core_count(in_tiles, across))
    )
    out_columns = choose_core_count(out_tiles, across)
    alignment = in_alignment if columns == 1 else TILE_SIZE
    return Sharding(
        layout=ShardLayout(layout),
        rows=rows,
        columns=columns,
        out_columns=out_columns,
        in_height=round_up(conv.input_sticks, rows * TILE_SIZE) // rows,
        out_height=round_up(conv.output_sticks, rows * TILE_SIZE) // rows,
        in_width=round_up(conv.in_channels, columns * alignment) // columns,
        out_width=round_up(conv.out_channels, out_columns * TILE_SIZE) // out_columns,
    )


def _split_sticks(sticks: int, rows: int, height: int) -> list[Interval]:
    return [Interval(min(row * height, sticks), min((row + 1) * height, sticks)) for row in range(rows)]
