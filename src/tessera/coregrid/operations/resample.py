"""Resample images: repeat or interpolate pixels, or insert zeros between pixels."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tessera.coregrid.device.device import Device
from tessera.coregrid.device.storage import MatrixSpec, ShardedStorage
from tessera.coregrid.device.tensors import (
    Tensor,
    allocate_tensor,
    deallocate,
    from_torch,
    get_sharded_storage,
    move_to_config,
    to_torch,
)
from tessera.coregrid.memory_config import DRAM_MEMORY_CONFIG, MemoryConfig
from tessera.coregrid.operations.inputs import choose_device, ensure_height_sharded, plan_height_shards, write_shard
from tessera.coregrid.operations.values import refuse_unsupported, store_result
from tessera.coregrid.planning.halo import IntArray
from tessera.coregrid.planning.ledger import Ledger
from tessera.coregrid.planning.memory import OutOfMemory
from tessera.errors import TesseraError
from tessera.geometry.partition import split_evenly

WeightedSticks = list[tuple[IntArray, NDArray[np.float32]]]  # input stick (-1 for none) and weight for every output
UPSAMPLE_MODES = ("nearest", "bilinear")


def upsample(
    input_tensor: Tensor,
    scale_factor: float | Sequence[float],
    *,
    mode: str = "nearest",
    device: Device | None = None,
    memory_config: MemoryConfig | None = None,
    **options: Any,
) -> Tensor:
    """Upsample images `(N, H, W, C)` by any factors: repeat pixels (nearest) or interpolate (bilinear).

    Images that do not fit the memory of the cores are resampled in slices.
    """
    refuse_unsupported("upsample", options)
    if len(input_tensor.shape) != 4:
        raise TesseraError("images must have four dims", got=input_tensor.shape, allowed="(N, H, W, C)")
    down, right = (scale_factor, scale_factor) if isinstance(scale_factor, int | float) else scale_factor
    if min(down, right) <= 0:
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
        input_tensor,
        (batch, int(height * down), int(width * right), channels),
        shares,
        choose_device(input_tensor, device),
    )
    return move_to_config(output, memory_config)


def insert_zeros(tensor: Tensor, sizes: tuple[int, int, int, int], stride: tuple[int, int], device: Device) -> Tensor:
    """Return images with `stride - 1` zeros inserted between adjacent pixels, for a transposed convolution."""
    batch, height, width, channels = sizes
    rows, columns = (_list_zero_stuffed_indices(size, step) for size, step in ((height, stride[0]), (width, stride[1])))
    sticks = _list_sticks(batch, (height, width), rows, columns)
    shape = batch, len(rows), len(columns), channels
    return _combine_sticks(tensor, shape, [(sticks, np.ones(len(sticks), dtype=np.float32))], device)


def _combine_sticks(tensor: Tensor, shape: tuple[int, int, int, int], taps: WeightedSticks, device: Device) -> Tensor:
    """Compute every output stick as a weighted sum of input sticks, in slices if they do not fit the cores."""
    try:
        return _combine_shards(tensor, shape, taps, device)
    except OutOfMemory:
        if tensor.is_sharded():
            raise
    count, total = 1, prod(shape[:3])
    while count < total:
        count *= 2
        try:
            return _combine_slices(tensor, shape, taps, device, count)
        except OutOfMemory:
            if count >= total:
                raise
    raise OutOfMemory("one stick does not fit the memory of a core", got=tensor, do="deallocate other tensors")


def _combine_slices(
    tensor: Tensor, shape: tuple[int, int, int, int], taps: WeightedSticks, device: Device, count: int
) -> Tensor:
    """Combine sticks in `count` slices of the output, which are read from and written to global memory."""
    sticks, parts = to_torch(tensor).reshape(-1, shape[-1]), []
    for run in split_evenly(prod(shape[:3]), count):
        if not len(run):
            continue
        used = np.concatenate([source[run.slice] for source, _ in taps])
        used = used[used >= 0]
        first, last = (int(used.min()), int(used.max()) + 1) if len(used) else (0, 1)
        part = from_torch(sticks[first:last].reshape(1, 1, last - first, -1), tensor.dtype, layout=tensor.layout)
        moved = [
            (np.where(source[run.slice] < 0, -1, source[run.slice] - first), share[run.slice]) for source, share in taps
        ]
        combined = _combine_shards(part, (1, 1, len(run), shape[-1]), moved, device)
        device.add_moved_bytes(Ledger(global_read=(last - first) * tensor.matrix.row_bytes))
        parts.append(to_torch(combined).reshape(-1, shape[-1]))
        deallocate(combined)
    return store_result(torch.cat(parts), tensor, shape=shape, memory_config=DRAM_MEMORY_CONFIG, device=device)


@torch.no_grad()
def _combine_shards(tensor: Tensor, shape: tuple[int, int, int, int], taps: WeightedSticks, device: Device) -> Tensor:
    """Compute every output stick as a weighted sum of input sticks, on height-sharded tensors."""
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


def _compute_interpolation_weights(size: int, factor: float, mode: str) -> list[tuple[IntArray, NDArray[np.float64]]]:
    """Return pairs (input index, interpolation weight) of arrays over the outputs along one image dim."""
    place = np.arange(int(size * factor))
    if mode == "nearest":
        nearest = np.floor(place.astype(np.float32) * np.float32(1 / factor)).astype(np.int64)
        return [(np.minimum(nearest, size - 1), np.ones(len(place)))]
    centre = np.maximum((place + 0.5) / factor - 0.5, 0)
    below = np.minimum(np.floor(centre).astype(np.int64), size - 1)
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
