"""Plan a matrix product of tensors in global memory: blocks of the output on the cores, buffers, and bytes moved.

The output is split over the rows and columns of the grid in whole tiles. A core computes its part in output blocks, and
every block as a sum over inner blocks. The first core of a row reads an activation block and multicasts it along the
row; the first core of a column reads a weight block and multicasts it down the column. Both have two buffers.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tessera.coregrid.formats import TILE_SIZE, DataType
from tessera.coregrid.planning.ledger import Ledger
from tessera.coregrid.planning.memory import OutOfMemory
from tessera.coregrid.planning.sharding import choose_core_count
from tessera.geometry import Mesh

BUFFERS = 2  # of activations and of weights


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulPlan:
    """Plan of a matrix product, with sizes in tiles.

    `part` is the output of one core (height, width), `block` one block of this output, and `inner` the depth of a block
    along the inner dim. `bytes` is the memory per core.
    """

    grid: Mesh
    part: tuple[int, int]
    block: tuple[int, int]
    inner: int
    bytes: int
    ledger: Ledger


def plan_matmul(
    sizes: tuple[int, int, int],
    formats: tuple[DataType, DataType, DataType],
    *,
    grid: Mesh,
    memory: int,
    batch: int = 1,
    bias: bool = False,
    partials: DataType | None = None,
) -> MatmulPlan:
    """Plan the product of `sizes` (rows, inner dim, columns) in the formats of activations, weights and output.

    The output block is the whole part of a core, and as deep as `memory` bytes per core allow; if that is too large,
    the block is halved. Raises OutOfMemory if a block of one tile does not fit.
    """
    rows, inner, columns = (-(-size // TILE_SIZE) for size in sizes)
    down, across = choose_core_count(rows * batch, grid.rows), choose_core_count(columns, grid.cols)
    part = -(-rows * batch // down), -(-columns // across)
    left, right, out = (dtype.tile_bytes for dtype in formats)
    stored = (partials or formats[2]).tile_bytes

    def count_bytes(height: int, width: int, depth: int) -> int:
        buffers = BUFFERS * depth * (height * left + width * right)
        return buffers + height * width * max(out, stored) + (width * right if bias else 0)

    height, width = part
    while count_bytes(height, width, 1) > memory and height * width > 1:
        height, width = (-(-height // 2), width) if height >= width else (height, -(-width // 2))
    depths = [
        depth for depth in range(1, inner + 1) if inner % depth == 0 and count_bytes(height, width, depth) <= memory
    ]
    if not depths:
        raise OutOfMemory(
            "a tile of this matrix product does not fit the memory of a core",
            got=f"{count_bytes(1, 1, 1):,} bytes",
            allowed=f"up to {memory:,}",
            do="deallocate tensors that are no longer needed",
        )
    depth = max(depths)
    passes = -(-part[0] // height), -(-part[1] // width)
    read = rows * batch * inner * left * passes[1], inner * columns * right * passes[0] * batch
    written = rows * batch * columns * out
    ledger = Ledger(
        global_read=sum(read) + (columns * right if bias else 0),
        multicast=read[0] * (across - 1) + read[1] * (down - 1),
        global_written=written,
    )
    return MatmulPlan(
        grid=Mesh(down, across),
        part=part,
        block=(height, width),
        inner=depth,
        bytes=count_bytes(height, width, depth),
        ledger=ledger,
    )


def count_batches(shape: tuple[int, ...]) -> int:
    """Return the number of matrices in a tensor of matrices."""
    return prod(shape[:-2])
