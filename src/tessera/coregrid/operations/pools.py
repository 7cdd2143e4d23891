"""Pools over height-sharded images, each core over its own run of outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor as TorchTensor

from tessera.coregrid.convolution import Pair
from tessera.coregrid.device.device import Device
from tessera.coregrid.device.memory_config import MemoryConfig
from tessera.coregrid.device.storage import Matrix
from tessera.coregrid.device.tensors import Tensor, deallocate, empty, moved_to, on_cores
from tessera.coregrid.execution.windows import WindowMoves, haloed
from tessera.coregrid.operations.images import check_images, device_of, paddings, pair
from tessera.coregrid.operations.sharded import by_height, even_runs, put
from tessera.errors import TesseraError
from tessera.geometry import Interval, Window

# The outputs of a core from its haloed sticks, the sticks of every pixel of the window, and which outputs they are.
Reduce = Callable[[TorchTensor, list[TorchTensor], Interval], TorchTensor]


def max_pool2d(
    input_tensor: Tensor,
    batch_size: int,
    input_h: int,
    input_w: int,
    channels: int,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    *,
    device: Device | None = None,
    ceil_mode: bool = False,
    memory_config: MemoryConfig | None = None,
    deallocate_input: bool = False,
) -> Tensor:
    """The largest of every window; gives `(1, 1, N*Ho*Wo, C)`. An input on the host needs a device."""
    window = _window((input_h, input_w), kernel_size, stride, padding, dilation, ceil_mode)

    def largest(sticks: TorchTensor, taps: list[TorchTensor], outputs: Interval) -> TorchTensor:
        found = sticks.index_select(0, taps[0])
        for tap in taps[1:]:
            torch.maximum(found, sticks.index_select(0, tap), out=found)
        return found

    shape = batch_size, input_h, input_w, channels
    return _pooled(input_tensor, shape, window, largest, -torch.inf, device, deallocate_input, memory_config)


def avg_pool2d(
    input_tensor: Tensor,
    batch_size: int,
    input_h: int,
    input_w: int,
    channels: int,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int] = (0, 0),
    *,
    device: Device | None = None,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    memory_config: MemoryConfig | None = None,
    deallocate_input: bool = False,
) -> Tensor:
    """The mean of every window, padding counted as zeros unless said otherwise; gives `(1, 1, N*Ho*Wo, C)`."""
    window = _window((input_h, input_w), kernel_size, stride, padding, (1, 1), ceil_mode)
    if divisor_override is not None and divisor_override < 1:
        raise TesseraError("a divisor is 1 or more", got=divisor_override)
    counts = torch.from_numpy(np.tile(_counts((input_h, input_w), window, count_include_pad), batch_size))
    if divisor_override is not None:
        counts.fill_(divisor_override)

    def mean(sticks: TorchTensor, taps: list[TorchTensor], outputs: Interval) -> TorchTensor:
        found = sticks.index_select(0, taps[0]).float()
        for tap in taps[1:]:
            found += sticks.index_select(0, tap)
        return found.div_(counts[outputs.slice, None])

    shape = batch_size, input_h, input_w, channels
    return _pooled(input_tensor, shape, window, mean, 0.0, device, deallocate_input, memory_config)


@torch.no_grad()
def _pooled(
    given: Tensor,
    shape: tuple[int, int, int, int],
    window: Window,
    reduce: Reduce,
    padding: float,
    device: Device | None,
    frees: bool,
    memory_config: MemoryConfig | None,
) -> Tensor:
    """Make the haloed shards, then on every core its own outputs."""
    device = device_of(given, device)
    check_images(given, shape, device)
    batch, height, width, channels = shape
    result = 1, 1, batch * prod(window.output_size((height, width))), channels
    matrix = Matrix.of(result, given.dtype, given.layout)
    config, outputs = even_runs(matrix, device)
    source, shards, frees = by_height(given, device, frees=frees)
    inputs = [shards.rows(row) for row in range(shards.down)]
    key = ("windows", shape, window, shards.height, shards.down)
    if key not in device.programs:
        device.programs[key] = WindowMoves.of((batch, height, width), window, inputs, outputs)
    moves: WindowMoves = device.programs[key]
    try:
        with haloed(device, source, moves, padding=padding, frees=frees, what="a pool") as sticks:
            made = empty(device, matrix, result, config, "output of a pool")
            storage = on_cores(made)
            for core, run in enumerate(outputs):
                if len(run):
                    put(storage, core, 0, reduce(sticks(core), moves.taps[core], run))
    finally:
        if source is not given:  # a copy is left if there was no room for its halo
            deallocate(source)
    return moved_to(made, memory_config)


def _window(
    size: Pair,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> Window:
    try:
        window = Window(
            pair("kernel_size", kernel),
            pair("stride", stride),
            pair("dilation", dilation),
            paddings(padding),
            ceil_mode,
        )
        window.output_size(size)
    except ValueError as error:
        raise TesseraError(str(error), do="use a smaller kernel or more padding") from None
    if any(2 * side > length for sides, length in zip(window.padding, window.kernel, strict=True) for side in sides):
        raise TesseraError("a pool is padded by half its kernel at most", got=padding, allowed=f"half of {kernel}")
    return window


def _counts(size: Pair, window: Window, with_padding: bool) -> NDArray[np.float32]:
    """How many pixels the mean of every output of an image goes over."""
    found = []
    for axis, length in enumerate(size):
        before, after = window.padding[axis]
        first = np.arange(window.output_size(size)[axis]) * window.stride[axis] - before
        last = np.minimum(first + window.kernel[axis], length + after)  # the end of what is padded, in ceil mode
        if not with_padding:
            first, last = np.maximum(first, 0), np.minimum(last, length)
        found.append(last - first)
    counts: NDArray[np.float32] = (found[0][:, None] * found[1]).reshape(-1).astype(np.float32)
    return counts
