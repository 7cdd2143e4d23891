"""Max pools and average pools of images in any memory, in slices if necessary, and global average pools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor as TorchTensor

from tessera.coregrid.convolution import Pair, parse_padding, parse_pair
from tessera.coregrid.cores import CoreRangeSet
from tessera.coregrid.device.device import Device
from tessera.coregrid.device.storage import MatrixSpec, ShardedStorage
from tessera.coregrid.device.tensors import (
    Tensor,
    allocate_tensor,
    deallocate,
    from_torch,
    get_sharded_storage,
    move_to_config,
    reshape,
    to_layout,
    to_torch,
    typecast,
)
from tessera.coregrid.execution.program import HaloMoves
from tessera.coregrid.execution.replay import CallRecorder
from tessera.coregrid.formats import TILE_SIZE, DataType, Layout
from tessera.coregrid.memory_config import DRAM_MEMORY_CONFIG, BufferType, MemoryConfig, ShardOrientation, ShardSpec
from tessera.coregrid.operations.inputs import (
    check_images,
    choose_device,
    ensure_height_sharded,
    plan_height_shards,
    release_activation,
    write_shard,
)
from tessera.coregrid.operations.values import load_values, refuse_unsupported, store_result
from tessera.coregrid.planning.halo import PaddedSticks
from tessera.coregrid.planning.ledger import Ledger
from tessera.coregrid.planning.memory import OutOfMemory, get_sticks_dtype
from tessera.coregrid.planning.sharding import round_up
from tessera.errors import TesseraError
from tessera.geometry import Interval, Window

# (sticks of the haloed shard, stick positions of every window pixel, outputs of the core) -> output values
WindowReduction = Callable[[TorchTensor, list[TorchTensor], Interval], TorchTensor]

# Arguments of ttnn's pools that arrange the work and the memory of the cores.
POOL_NO_EFFECT = (
    "applied_shard_scheme",
    "config_tensor_in_dram",
    "dram_slice_config",
    "in_place_halo",
    "reallocate_halo_output",
)


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
    dtype: DataType | None = None,
    output_layout: Layout | None = None,
    return_indices: bool = False,
    **options: Any,
) -> Tensor:
    """Return the maximum of every window as `(1, 1, N*Ho*Wo, C)`. A host input requires `device`.

    Images that do not fit the memory of the cores are pooled in slices. The arguments of ttnn in `POOL_NO_EFFECT`
    have no effect.
    """
    refuse_unsupported("max_pool2d", options, POOL_NO_EFFECT)
    if return_indices:
        raise TesseraError("max_pool2d does not return indices", got="return_indices=True", do="set it to False")
    window = _build_window((input_h, input_w), kernel_size, stride, padding, dilation, ceil_mode)

    def reduce_max(sticks: TorchTensor, taps: list[TorchTensor], outputs: Interval) -> TorchTensor:
        maximum = sticks.index_select(0, taps[0])
        for tap in taps[1:]:
            torch.maximum(maximum, sticks.index_select(0, tap), out=maximum)
        return maximum

    shape = batch_size, input_h, input_w, channels
    output = _pool_or_slice(input_tensor, shape, window, reduce_max, -torch.inf, device, deallocate_input)
    return _convert_output(output, dtype, output_layout, memory_config)


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
    dtype: DataType | None = None,
    output_layout: Layout | None = None,
    **options: Any,
) -> Tensor:
    """Return the mean of every window as `(1, 1, N*Ho*Wo, C)`. Padding counts as zeros by default.

    Images that do not fit the memory of the cores are pooled in slices. The arguments of ttnn in `POOL_NO_EFFECT`
    have no effect.
    """
    refuse_unsupported("avg_pool2d", options, POOL_NO_EFFECT)
    window = _build_window((input_h, input_w), kernel_size, stride, padding, (1, 1), ceil_mode)
    if divisor_override is not None and divisor_override < 1:
        raise TesseraError("divisor_override must be positive", got=divisor_override)
    counts = torch.from_numpy(
        np.tile(_count_averaged_pixels((input_h, input_w), window, count_include_pad), batch_size)
    )
    if divisor_override is not None:
        counts.fill_(divisor_override)

    def reduce_mean(sticks: TorchTensor, taps: list[TorchTensor], outputs: Interval) -> TorchTensor:
        total = sticks.index_select(0, taps[0]).float()
        for tap in taps[1:]:
            total += sticks.index_select(0, tap)
        return total.div_(counts[outputs.slice, None])

    shape = batch_size, input_h, input_w, channels
    whole = window.kernel == (input_h, input_w) and window.padding == ((0, 0), (0, 0)) and divisor_override is None
    if whole and input_tensor.is_sharded():  # every core averages the sticks that it holds
        check_images(input_tensor, shape, choose_device(input_tensor, device))
        output = reshape(global_avg_pool2d(reshape(input_tensor, shape)), (1, 1, batch_size, channels))
        if deallocate_input:
            release_activation(input_tensor)
    else:
        output = _pool_or_slice(input_tensor, shape, window, reduce_mean, 0.0, device, deallocate_input)
    return _convert_output(output, dtype, output_layout, memory_config)


def _convert_output(
    output: Tensor, dtype: DataType | None, layout: Layout | None, memory_config: MemoryConfig | None
) -> Tensor:
    """Convert the output of a pool to a format, layout and memory config; None leaves each unchanged."""
    if dtype is not None and dtype is not output.dtype:
        output = typecast(output, dtype)
    if layout is not None and layout is not output.layout:
        output = to_layout(output, layout)
    return move_to_config(output, memory_config)


def _pool_or_slice(
    tensor: Tensor,
    shape: tuple[int, int, int, int],
    window: Window,
    reduce: WindowReduction,
    padding: float,
    device: Device | None,
    free_input: bool,
) -> Tensor:
    """Pool all images at once, or in slices of output rows if they do not fit the memory of the cores."""
    device = choose_device(tensor, device)
    try:
        return _pool_windows(tensor, shape, window, reduce, padding, device, free_input)
    except OutOfMemory:
        if tensor.is_sharded() or not tensor.is_allocated():
            raise
    rows = window.compute_output_size(shape[1:3])[0]
    while rows > 1:
        rows = -(-rows // 2)
        try:
            return _pool_slices(tensor, shape, window, reduce, padding, device, rows)
        except OutOfMemory:
            if rows == 1:
                raise
    raise AssertionError("unreachable: one row was tried")


def _pool_slices(
    tensor: Tensor,
    shape: tuple[int, int, int, int],
    window: Window,
    reduce: WindowReduction,
    padding: float,
    device: Device,
    rows: int,
) -> Tensor:
    """Pool images in slices of `rows` output rows, which are read from and written to global memory."""
    batch, height, width, channels = shape
    down, across = window.compute_output_size((height, width))
    images = to_torch(tensor).reshape(shape)
    (top, _), (left, _) = window.padding
    right = max(0, (across - 1) * window.stride[1] + window.extent[1] - left - width)
    parts = []
    for image in range(batch):
        for first in range(0, down, rows):
            last = min(first + rows, down)
            start = first * window.stride[0] - top
            stop = (last - 1) * window.stride[0] - top + window.extent[0]
            lines = Interval(max(start, 0), min(stop, height))
            around = (lines.start - start, stop - lines.stop), (left, right)
            part = Window(window.kernel, window.stride, window.dilation, around)
            offset = (image * down + first) * across
            pooled = _pool_windows(
                from_torch(images[image : image + 1, lines.slice], tensor.dtype, layout=tensor.layout),
                (1, len(lines), width, channels),
                part,
                lambda sticks, taps, run, offset=offset: reduce(sticks, taps, run + offset),  # type: ignore[misc]
                padding,
                device,
                True,
            )
            device.add_moved_bytes(Ledger(global_read=len(lines) * width * tensor.matrix.row_bytes))
            parts.append(to_torch(pooled).reshape(-1, channels))
            deallocate(pooled)
    values = torch.cat(parts)
    return store_result(values, tensor, shape=(1, 1, *values.shape), memory_config=DRAM_MEMORY_CONFIG, device=device)


@torch.no_grad()
def _pool_windows(
    tensor: Tensor,
    shape: tuple[int, int, int, int],
    window: Window,
    reduce: WindowReduction,
    padding: float,
    device: Device,
    free_input: bool,
) -> Tensor:
    """Pool images: fill the haloed shards, then apply `reduce` to the windows of every core's outputs."""
    check_images(tensor, shape, device)
    batch, height, width, channels = shape
    result = 1, 1, batch * prod(window.compute_output_size((height, width))), channels
    matrix = MatrixSpec.of(result, tensor.dtype, tensor.layout)
    config, outputs = plan_height_shards(matrix, device)
    source, shards, free_input = ensure_height_sharded(tensor, device, free_input=free_input)
    inputs = [shards.get_rows(row) for row in range(shards.down)]
    key = ("windows", shape, window, shards.height, shards.down)
    if key not in device.programs:
        device.programs[key] = WindowMoves.of((batch, height, width), window, inputs, outputs)
    moves: WindowMoves = device.programs[key]
    arena, dtype, sizes = device.arena, get_sticks_dtype(tensor.dtype).torch, moves.halo.sizes
    with ExitStack() as undo:
        if source is not tensor:  # free the copy if the haloed shards do not fit
            undo.callback(deallocate, source)
        haloed = arena.allocate(max(sizes) * shards.width * dtype.itemsize, "haloed input of a pool")
        undo.callback(arena.free, haloed)

        def view_sticks(core: int) -> TorchTensor:
            return arena.view(core, haloed, dtype, (sizes[core], shards.width))

        def read_shard(row: int) -> TorchTensor:
            return shards.read_shard_values(row, 0).to(dtype)

        device.add_moved_bytes(moves.halo.exchange(read_shard, view_sticks, padding, CallRecorder(keep=False)))
        if free_input:
            deallocate(source)
        output = allocate_tensor(device, matrix, result, config, "output of a pool")
        storage = get_sharded_storage(output)
        for core, run in enumerate(outputs):
            if len(run):
                write_shard(storage, core, 0, reduce(view_sticks(core), moves.taps[core], run))
    return output


def _build_window(
    size: Pair,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> Window:
    try:
        window = Window(
            parse_pair("kernel_size", kernel),
            parse_pair("stride", stride),
            parse_pair("dilation", dilation),
            parse_padding(padding),
            ceil_mode,
        )
        window.compute_output_size(size)
    except ValueError as error:
        raise TesseraError(str(error), do="use a smaller kernel or more padding") from None
    if any(2 * side > length for sides, length in zip(window.padding, window.kernel, strict=True) for side in sides):
        raise TesseraError("padding must not exceed half of kernel_size", got=padding, allowed=f"half of {kernel}")
    return window


def _count_averaged_pixels(size: Pair, window: Window, with_padding: bool) -> NDArray[np.float32]:
    """Return the number of averaged pixels for every output of an image. `with_padding` counts padding as well."""
    lengths = []
    for axis, length in enumerate(size):
        before, after = window.padding[axis]
        first = np.arange(window.compute_output_size(size)[axis]) * window.stride[axis] - before
        # in ceil mode a window may extend beyond the padding
        last = np.minimum(first + window.kernel[axis], length + after)
        if not with_padding:
            first, last = np.maximum(first, 0), np.minimum(last, length)
        lengths.append(last - first)
    counts: NDArray[np.float32] = (lengths[0][:, None] * lengths[1]).reshape(-1).astype(np.float32)
    return counts


@dataclass(frozen=True, slots=True)
class WindowMoves:
    """Halo exchange for a window as indexed copies, and the positions of every window pixel in each core's shard."""

    halo: HaloMoves
    taps: list[list[TorchTensor]]

    @classmethod
    def of(
        cls, sizes: tuple[int, int, int], window: Window, inputs: list[Interval], outputs: list[Interval]
    ) -> WindowMoves:
        sticks = PaddedSticks(sizes, window)
        halo_runs = sticks.build_halo_runs(inputs, outputs)
        taps = [
            [torch.from_numpy(sticks.corners[run.slice] - span.start + tap) for tap in sticks.taps]
            for run, span in zip(outputs, halo_runs.ranges, strict=True)
        ]
        return cls(HaloMoves.of(halo_runs), taps)


@torch.no_grad()
def global_avg_pool2d(
    input_tensor: Tensor, *, memory_config: MemoryConfig | None = None, dtype: DataType | None = None, **options: Any
) -> Tensor:
    """Return the mean of every channel over images `(N, H, W, C)` as `(N, 1, 1, C)`.

    Interleaved images are read page by page, and the means are interleaved in the same memory. Of sharded images,
    every core sums its own sticks per image. Within each column of shards, the sums are sent as float32 to the core in
    the first row.
    """
    refuse_unsupported("global_avg_pool2d", options, POOL_NO_EFFECT)
    if len(input_tensor.shape) != 4:
        raise TesseraError("images must have four dims", got=input_tensor.shape, allowed="(N, H, W, C)")
    batch, height, width, channels = input_tensor.shape
    if not input_tensor.is_sharded():
        averages = load_values(input_tensor).mean((1, 2), keepdim=True)
        return store_result(averages, input_tensor, dtype=dtype, memory_config=memory_config)
    source, device = get_sharded_storage(input_tensor), input_tensor.allocation.device
    shape = batch, 1, 1, channels
    matrix = MatrixSpec.of(shape, input_tensor.dtype, input_tensor.layout)
    means = allocate_tensor(
        device, matrix, shape, _build_first_row_config(input_tensor.memory_config(), source, batch), "mean of images"
    )
    target, pixels, ledger = get_sharded_storage(means), height * width, Ledger()
    for column in range(source.across):
        sums = torch.zeros(batch, source.width)
        home = target.get_core(0, column)
        for row in range(source.down):
            mine = source.get_rows(row)
            if not len(mine):
                continue
            sticks = source.read_shard_values(row, column)
            images = Interval(mine.start // pixels, -(-mine.stop // pixels))
            for image in range(images.start, images.stop):
                part = (Interval(image * pixels, (image + 1) * pixels) & mine) - mine.start
                sums[image] += sticks[part.slice].float().sum(0)
            if source.get_core(row, column) != home:
                ledger += Ledger(remote=len(images) * source.width * sums.element_size())
        write_shard(target, 0, column, sums.div_(pixels))
    device.add_moved_bytes(ledger)
    return _convert_output(means, dtype, None, memory_config)


def _build_first_row_config(config: MemoryConfig, source: ShardedStorage, batch: int) -> MemoryConfig:
    """Build the memory config of one row per image, on the cores of the first row of shards of `source`."""
    spec = config.shard_spec
    assert spec is not None
    by_rows = spec.orientation is ShardOrientation.ROW_MAJOR
    if source.down == 1:
        cores = spec.grid
    else:
        cores = CoreRangeSet.of_rectangle(1, source.across) if by_rows else CoreRangeSet.of_rectangle(source.across, 1)
    shape = round_up(batch, TILE_SIZE), source.width
    return MemoryConfig(config.memory_layout, BufferType.L1, ShardSpec(cores, shape, spec.orientation))
