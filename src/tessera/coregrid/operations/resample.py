"""Images spread out: repeated or interpolated pixels, and zeros in between."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from tessera.coregrid.device.device import Device
from tessera.coregrid.device.memory_config import MemoryConfig
from tessera.coregrid.device.storage import Matrix
from tessera.coregrid.device.tensors import Tensor, deallocate, empty, moved_to, on_cores
from tessera.coregrid.execution.taking import take
from tessera.coregrid.operations.images import device_of
from tessera.coregrid.operations.sharded import by_height, even_runs, put
from tessera.coregrid.planning.sticks import Ints
from tessera.errors import TesseraError

Taps = list[tuple[Ints, NDArray[np.float32]]]  # sticks of the input for every output (-1 for none), and their shares
MODES = ("nearest", "bilinear")


def upsample(
    input_tensor: Tensor,
    scale_factor: int | Sequence[int],
    *,
    mode: str = "nearest",
    device: Device | None = None,
    memory_config: MemoryConfig | None = None,
) -> Tensor:
    """Images `(N, H, W, C)` larger by whole factors: pixels repeated, or interpolated as torch does it."""
    if len(input_tensor.shape) != 4:
        raise TesseraError("images have four dims", got=input_tensor.shape, allowed="(N, H, W, C)")
    down, right = (scale_factor, scale_factor) if isinstance(scale_factor, int) else scale_factor
    if min(down, right) < 1:
        raise TesseraError("a scale factor is 1 or more", got=scale_factor)
    if mode not in MODES:
        raise TesseraError("unknown mode", got=mode, allowed=MODES)
    batch, height, width, channels = input_tensor.shape
    rows, columns = _shares(height, down, mode), _shares(width, right, mode)
    taps = [(_grid(batch, (height, width), y, x), np.outer(a, b).reshape(-1)) for y, a in rows for x, b in columns]
    shares = [(sticks, np.tile(share.astype(np.float32), batch)) for sticks, share in taps]
    made = _spread(
        input_tensor, (batch, height * down, width * right, channels), shares, device_of(input_tensor, device)
    )
    return moved_to(made, memory_config)


def with_zeros_between(
    given: Tensor, sizes: tuple[int, int, int, int], stride: tuple[int, int], device: Device
) -> Tensor:
    """Images with `stride - 1` zeros between neighbours: what a transposed convolution slides over."""
    batch, height, width, channels = sizes
    rows, columns = (_every(size, step) for size, step in ((height, stride[0]), (width, stride[1])))
    sticks = _grid(batch, (height, width), rows, columns)
    shape = batch, len(rows), len(columns), channels
    return _spread(given, shape, [(sticks, np.ones(len(sticks), dtype=np.float32))], device)


@torch.no_grad()
def _spread(given: Tensor, shape: tuple[int, int, int, int], taps: Taps, device: Device) -> Tensor:
    """Every output stick as a sum of input sticks, each with its share."""
    source, shards, frees = by_height(given, device)
    matrix = Matrix.of(shape, given.dtype, given.layout)
    config, outputs = even_runs(matrix, device)
    try:
        made = empty(device, matrix, shape, config, "spread images")
        target = on_cores(made)
        for row, run in enumerate(outputs):
            if not len(run):
                continue
            found = torch.zeros(len(run), shards.width)
            for sticks, share in taps:
                part, moved = take(shards, target, row, sticks[run.slice])
                device.count(moved)
                found += part.mul_(torch.from_numpy(share[run.slice])[:, None])
            put(target, row, 0, found)
        return made
    finally:
        if frees:
            deallocate(source)


def _shares(size: int, factor: int, mode: str) -> list[tuple[Ints, NDArray[np.float64]]]:
    """Along one dim: for every output the inputs it is made of, one after the other, and the share of each."""
    place = np.arange(size * factor)
    if mode == "nearest":
        return [(place // factor, np.ones(len(place)))]
    centre = np.maximum((place + 0.5) / factor - 0.5, 0)
    below = np.floor(centre).astype(np.int64)
    above, share = np.minimum(below + 1, size - 1), centre - below
    return [(below, 1 - share), (above, share)]


def _every(size: int, step: int) -> Ints:
    """Along one dim, the inputs with zeros (-1) in between."""
    found = np.full((size - 1) * step + 1, -1)
    found[::step] = np.arange(size)
    return found


def _grid(batch: int, size: tuple[int, int], rows: Ints, columns: Ints) -> Ints:
    """The sticks at these rows and columns of all images, -1 where either is none."""
    height, width = size
    image = np.where((rows[:, None] < 0) | (columns < 0), -1, rows[:, None] * width + columns).reshape(-1)
    numbers = np.arange(batch)[:, None] * height * width + image
    return np.where(image < 0, -1, numbers).reshape(-1)
