"""Resample images: repeat or interpolate pixels, or insert zeros between pixels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from tessera.coregrid.device.device import Device
from tessera.coregrid.device.memory_config import MemoryConfig
from tessera.coregrid.device.storage import MatrixSpec, ShardedStorage
from tessera.coregrid.device.tensors import Tensor, allocate_tensor, deallocate, get_sharded_storage, move_to_config
from tessera.coregrid.operations.inputs import choose_device, ensure_height_sharded, plan_height_shards, write_shard
from tessera.coregrid.planning.halo import IntArray
from tessera.coregrid.planning.ledger import Ledger
from tessera.errors import TesseraError

WeightedSticks = list[tuple[IntArray, NDArray[np.float32]]]  # input stick (-1 for none) and weight for every output
UPSAMPLE_MODES = ("nearest", "bilinear")


def upsample(
    input_tensor: Tensor,
    scale_factor: int | Sequence[int],
    *,
    mode: str = "nearest",
    device: Device | None = None,
    memory_config: MemoryConfig | None = None,
) -> Tensor:
    """Upsample images `(N, H, W, C)` by integer factors: repeat pixels (nearest) or interpolate (bilinear)."""
    if len(input_tensor.shape) != 4:
        raise TesseraError("images must have four dims", got=input_tensor.shape, allowed="(N, H, W, C)")
    down, right = (scale_factor, scale_factor) if isinstance(scale_factor, int) else scale_factor
    if min(down, right) < 1:
        raise TesseraError("scale_factor must be positive", got=scale_factor)
    if mode not in UPSAMPLE_MODES:
        raise TesseraError("unknown upsampling mode", got=mode, allowed=UPSAMPLE_MODES)
    batch, height, width, channels = input_tensor.shape
    rows = _compute_interpolation_weights(height, down, mode)
    columns = _compute_interpolation_weights(width, right, mode)
    taps = [
        (_list_sticks(batch, (height, width), y, x), np.outer(a, b).reshape(-1)) for y, a in rows for x, b in columns
    ]
    shares = [(sticks, np.tile(share.astype(np.float32), batch)) for sticks, share in taps]
    output = _combine_sticks(
        input_tensor, (batch, height * down, width * right, channels), shares, choose_device(input_tensor, device)
    )
    return move_to_config(output, memory_config)


def insert_zeros(tensor: Tensor, sizes: tuple[int, int, int, int], stride: tuple[int, int], device: Device) -> Tensor:
    """Return images with `stride - 1` zeros inserted between adjacent pixels, for a transposed convolution."""
    batch, height, width, channels = sizes
    rows, columns = (_list_zero_stuffed_indices(size, step) for size, step in ((height, stride[0]), (width, stride[1])))
    sticks = _list_sticks(batch, (height, width), rows, columns)
    shape = batch, len(rows), len(columns), channels
    return _combine_sticks(tensor, shape, [(sticks, np.ones(len(sticks), dtype=np.float32))], device)


@torch.no_grad()
def _combine_sticks(tensor: Tensor, shape: tuple[int, int, int, int], taps: WeightedSticks, device: Device) -> Tensor:
    """Compute every output stick as a weighted sum of input sticks."""
    source, shards, must_free = ensure_height_sharded(tensor, device)
    matrix = MatrixSpec.of(shape, tensor.dtype, tensor.layout)
    config, outputs = plan_height_shards(matrix, device)
    try:
        output = allocate_tensor(device, matrix, shape, config, "resampled images")
        target = get_sharded_storage(output)
        for row, run in enumerate(outputs):
            if not len(run):
                continue
            total = torch.zeros(len(run), shards.width)
            for sticks, share in taps:
                part, ledger = gather_sticks(shards, target, row, sticks[run.slice])
                device.add_moved_bytes(ledger)
                total += part.mul_(torch.from_numpy(share[run.slice])[:, None])
            write_shard(target, row, 0, total)
        return output
    finally:
        if must_free:
            deallocate(source)


def _compute_interpolation_weights(size: int, factor: int, mode: str) -> list[tuple[IntArray, NDArray[np.float64]]]:
    """Return pairs (input index, interpolation weight) of arrays over the outputs along one image dim."""
    place = np.arange(size * factor)
    if mode == "nearest":
        return [(place // factor, np.ones(len(place)))]
    centre = np.maximum((place + 0.5) / factor - 0.5, 0)
    below = np.floor(centre).astype(np.int64)
    above, share = np.minimum(below + 1, size - 1), centre - below
    return [(below, 1 - share), (above, share)]


def _list_zero_stuffed_indices(size: int, step: int) -> IntArray:
    """Return the input index of every output along one image dim: an input at every `step`-th output, -1 between."""
    indices = np.full((size - 1) * step + 1, -1)
    indices[::step] = np.arange(size)
    return indices


def _list_sticks(batch: int, size: tuple[int, int], rows: IntArray, columns: IntArray) -> IntArray:
    """Return the stick numbers at the given rows and columns of all images; -1 where the row or column is -1."""
    height, width = size
    image = np.where((rows[:, None] < 0) | (columns < 0), -1, rows[:, None] * width + columns).reshape(-1)
    numbers = np.arange(batch)[:, None] * height * width + image
    return np.where(image < 0, -1, numbers).reshape(-1)


def gather_sticks(
    source: ShardedStorage, target: ShardedStorage, row: int, sticks: IntArray
) -> tuple[torch.Tensor, Ledger]:
    """Gather sticks (-1 for zeros) for the target core in row `row`; return float32 values and the bytes moved."""
    core = target.get_core(row, 0)
    values = torch.zeros(len(sticks), source.width)
    ledger = Ledger()
    owners = np.where(sticks >= 0, sticks // source.height, -1)
    for owner in np.unique(owners[owners >= 0]).tolist():
        places = np.flatnonzero(owners == owner)
        rows = torch.from_numpy(sticks[places] - owner * source.height)
        part = source.read_shard_values(owner, 0).index_select(0, rows)
        values.index_copy_(0, torch.from_numpy(places), part.float())
        size = len(places) * source.matrix.dtype.count_row_bytes(source.width)
        ledger += Ledger(local=size) if source.get_core(owner, 0) == core else Ledger(remote=size)
    return values, ledger
