"""The mean over whole images, however they are sharded: every core adds up its own sticks, the first ones the sums."""

from __future__ import annotations

import torch

from tessera.coregrid.device.grids import CoreRangeSet
from tessera.coregrid.device.memory_config import BufferType, MemoryConfig, ShardOrientation, ShardSpec
from tessera.coregrid.device.storage import Matrix, Shards
from tessera.coregrid.device.tensors import Tensor, empty, on_cores
from tessera.coregrid.formats import TILE
from tessera.coregrid.operations.sharded import put
from tessera.coregrid.planning.ledger import Ledger
from tessera.coregrid.planning.sharding import round_up
from tessera.errors import TesseraError
from tessera.geometry import Interval


@torch.no_grad()
def global_avg_pool2d(input_tensor: Tensor) -> Tensor:
    """The mean of every channel over images `(N, H, W, C)` in shards; gives `(N, 1, 1, C)`.

    Columns of shards stay where they are, all images come to the first row of cores; sums travel as float32.
    """
    if len(input_tensor.shape) != 4:
        raise TesseraError("images have four dims", got=input_tensor.shape, allowed="(N, H, W, C)")
    batch, height, width, channels = input_tensor.shape
    source, device = on_cores(input_tensor), input_tensor.placed.device
    shape = batch, 1, 1, channels
    matrix = Matrix.of(shape, input_tensor.dtype, input_tensor.layout)
    made = empty(device, matrix, shape, _first_row(input_tensor.memory_config(), source, batch), "mean of images")
    target, pixels, moved = on_cores(made), height * width, Ledger()
    for column in range(source.across):
        sums = torch.zeros(batch, source.width)
        home = target.core(0, column)
        for row in range(source.down):
            mine = source.rows(row)
            if not len(mine):
                continue
            sticks = source.numbers(row, column)
            images = Interval(mine.start // pixels, -(-mine.stop // pixels))
            for image in range(images.start, images.stop):
                part = (Interval(image * pixels, (image + 1) * pixels) & mine) - mine.start
                sums[image] += sticks[part.slice].float().sum(0)
            if source.core(row, column) != home:
                moved += Ledger(remote=len(images) * source.width * sums.element_size())
        put(target, 0, column, sums.div_(pixels))
    device.count(moved)
    return made


def _first_row(config: MemoryConfig, source: Shards, batch: int) -> MemoryConfig:
    """The cores of the first row of shards, with shards for all images."""
    spec = config.shard_spec
    assert spec is not None
    by_rows = spec.orientation is ShardOrientation.ROW_MAJOR
    if source.down == 1:
        cores = spec.grid
    else:
        cores = CoreRangeSet.rectangle(1, source.across) if by_rows else CoreRangeSet.rectangle(source.across, 1)
    shape = round_up(batch, TILE), source.width
    return MemoryConfig(config.memory_layout, BufferType.L1, ShardSpec(cores, shape, spec.orientation))
