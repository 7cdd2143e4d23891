"""How a convolution lies on the grid: which cores have which sticks and which channels."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tessera.coregrid.convolution import Convolution
from tessera.coregrid.formats import TILE
from tessera.geometry import Interval, Mesh


class ShardLayout(StrEnum):
    """What is cut: the sticks (HEIGHT), the channels (WIDTH), or both (BLOCK)."""

    HEIGHT = "HEIGHT"
    BLOCK = "BLOCK"
    WIDTH = "WIDTH"


LAYOUTS = tuple(ShardLayout)


def round_up(value: int, multiple: int) -> int:
    """
    >>> round_up(33, 32)
    64
    """
    return -(-value // multiple) * multiple


def cores_for(tiles: int, most: int, multiple: int = 1) -> int:
    """The most cores that all get something when so many tiles are dealt out evenly, `multiple` at a time.

    >>> cores_for(98, 64)
    49
    >>> cores_for(7, 64)
    7
    """
    for cores in range(most, 0, -1):
        dealt = round_up(tiles, cores * multiple)
        if dealt - tiles < dealt // cores:
            return cores
    return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """Sticks over `rows` cores, input channels over `columns` and output channels over `out_columns` of them.

    A height-sharded convolution has one column, a width-sharded one one row. Heights are in sticks, widths in
    channels, both of one core, padding included.
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
        """Cores that hold input or output."""
        return self.rows * max(self.columns, self.out_columns)

    def inputs(self, sticks: int) -> list[Interval]:
        """The sticks of the input that each row of cores has; the last may have fewer, or none."""
        return _dealt(sticks, self.rows, self.in_height)

    def outputs(self, sticks: int) -> list[Interval]:
        """The sticks of the output that each row of cores makes."""
        return _dealt(sticks, self.rows, self.out_height)


def most_rows(layout: ShardLayout, grid: Mesh, *, transpose_shards: bool = True) -> int:
    """Over how many rows of cores a layout may cut the sticks."""
    if layout == ShardLayout.HEIGHT:
        return grid.size
    if layout == ShardLayout.WIDTH:
        return 1
    return grid.rows if transpose_shards else grid.cols


def sharding_of(
    conv: Convolution,
    layout: ShardLayout,
    grid: Mesh,
    *,
    multiple: int = 1,
    in_alignment: int = TILE,
    transpose_shards: bool = True,
    whole_grid: bool = False,
) -> Sharding:
    """The chip's own rule for a layout on a grid.

    `multiple` is the height of an activation block in tiles: it decides how many cores take part, not how high their
    shards are. BLOCK cuts the sticks over the rows of the grid and the channels over its columns, the other way round
    without `transpose_shards`. With `whole_grid` every core of the grid takes part, even if it gets nothing.
    """
    tiles = -(-conv.outputs // TILE)
    in_tiles, out_tiles = -(-conv.in_channels // TILE), -(-conv.out_channels // TILE)
    down = most_rows(layout, grid, transpose_shards=transpose_shards)
    across = grid.size // down
    rows, columns = (down, across) if whole_grid else (cores_for(tiles, down, multiple), cores_for(in_tiles, across))
    out_columns = cores_for(out_tiles, across)
    alignment = in_alignment if columns == 1 else TILE
    return Sharding(
        layout=ShardLayout(layout),
        rows=rows,
        columns=columns,
        out_columns=out_columns,
        in_height=round_up(conv.inputs, rows * TILE) // rows,
        out_height=round_up(conv.outputs, rows * TILE) // rows,
        in_width=round_up(conv.in_channels, columns * alignment) // columns,
        out_width=round_up(conv.out_channels, out_columns * TILE) // out_columns,
    )


def _dealt(sticks: int, rows: int, height: int) -> list[Interval]:
    return [Interval(min(row * height, sticks), min((row + 1) * height, sticks)) for row in range(rows)]
