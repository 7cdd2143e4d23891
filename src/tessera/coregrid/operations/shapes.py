"""Operations that move values without arithmetic: permute, slice, concatenate, pad, fold and reshape."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional as F

from tessera.coregrid.device.tensors import Tensor, move_to_config, reshape, to_layout, to_memory_config
from tessera.coregrid.formats import DataType, Layout
from tessera.coregrid.memory_config import MemoryConfig
from tessera.coregrid.operations.values import load_values, refuse_unsupported, store_result
from tessera.errors import TesseraError

TILIZE_NO_EFFECT = ("use_low_perf", "use_multicore", "use_pack_untilize")


def permute(input_tensor: Tensor, dims: Sequence[int], *, memory_config: MemoryConfig | None = None) -> Tensor:
    """Return a tensor with its dims in the order `dims`."""
    return store_result(load_values(input_tensor).permute(*dims), input_tensor, memory_config=memory_config)


def transpose(input_tensor: Tensor, dim1: int, dim2: int, *, memory_config: MemoryConfig | None = None) -> Tensor:
    """Return a tensor with two dims exchanged."""
    return store_result(load_values(input_tensor).transpose(dim1, dim2), input_tensor, memory_config=memory_config)


def slice(  # ttnn's name
    input_tensor: Tensor,
    slice_start: Sequence[int],
    slice_end: Sequence[int],
    slice_step: Sequence[int] | None = None,
    *,
    memory_config: MemoryConfig | None = None,
) -> Tensor:
    """Return the values from `slice_start` to `slice_end` (exclusive) of every dim."""
    steps = slice_step or [1] * len(slice_start)
    ranges = [range(*bounds) for bounds in zip(slice_start, slice_end, steps, strict=True)]
    values = load_values(input_tensor)
    for dim, part in enumerate(ranges):
        values = values.index_select(dim, torch.tensor(list(part), dtype=torch.int64))
    return store_result(values, input_tensor, memory_config=memory_config)


def concat(tensors: Sequence[Tensor], dim: int = 0, *, memory_config: MemoryConfig | None = None) -> Tensor:
    """Concatenate tensors along a dim."""
    if not tensors:
        raise TesseraError("concat requires at least one tensor")
    values = torch.cat([load_values(tensor) for tensor in tensors], dim)
    return store_result(values, tensors[0], memory_config=memory_config)


def pad(
    input_tensor: Tensor,
    padding: Sequence[Sequence[int]],
    value: float = 0.0,
    *,
    memory_config: MemoryConfig | None = None,
    use_multicore: bool = True,
) -> Tensor:
    """Pad every dim with (before, after) values. `use_multicore` has no effect."""
    flat = [side for sides in reversed(list(padding)) for side in sides]
    return store_result(F.pad(load_values(input_tensor), flat, value=value), input_tensor, memory_config=memory_config)


def fold(
    input_tensor: Tensor,
    stride_h: int,
    stride_w: int,
    use_transpose_as_fold: bool = False,
    output_shape: Sequence[int] | None = None,
    padding: Sequence[int] | None = None,
    grid_size: Any = None,
    override_memory_config: MemoryConfig | None = None,
) -> Tensor:
    """Fold every window of `stride_h` x `stride_w` pixels of images into the channels of one pixel.

    `padding` is (height, width), (top, bottom, left, right), or these four and the channels (before, after). Images are
    `(N, H, W, C)`; with `use_transpose_as_fold`, `(N, C, H, W)`. `output_shape` and `grid_size` have no effect.
    """
    sides = list(padding or (0, 0))
    sides = [sides[0], sides[0], sides[1], sides[1], 0, 0] if len(sides) == 2 else [*sides, 0, 0][:6]
    values = load_values(input_tensor)
    if use_transpose_as_fold:
        values = values.permute(0, 2, 3, 1)
    top, bottom, left, right, front, back = sides
    values = F.pad(values, (front, back, left, right, top, bottom))
    batch, height, width, channels = values.shape
    if height % stride_h or width % stride_w:
        raise TesseraError(
            "fold requires sizes that are multiples of the strides",
            got=f"{height}x{width} with strides {stride_h}x{stride_w}",
        )
    split = values.reshape(batch, height // stride_h, stride_h, width // stride_w, stride_w, channels)
    folded = split.permute(0, 1, 3, 2, 4, 5).reshape(batch, height // stride_h, width // stride_w, -1)
    return store_result(folded, input_tensor, layout=Layout.ROW_MAJOR, memory_config=override_memory_config)


def squeeze(input_tensor: Tensor, dim: int | None = None) -> Tensor:
    """Remove a dim of size 1, or all of them."""
    dims = [dim % len(input_tensor.shape)] if dim is not None else range(len(input_tensor.shape))
    kept = [size for at, size in enumerate(input_tensor.shape) if at not in dims or size != 1]
    return reshape(input_tensor, kept or (1,))


def unsqueeze(input_tensor: Tensor, dim: int) -> Tensor:
    """Insert a dim of size 1."""
    sizes = list(input_tensor.shape)
    sizes.insert(dim % (len(sizes) + 1), 1)
    return reshape(input_tensor, sizes)


def split(input_tensor: Tensor, split_size: int | Sequence[int], dim: int = 0) -> list[Tensor]:
    """Split a tensor along a dim into parts of a size, or of the given sizes."""
    whole, values = input_tensor.shape[dim], load_values(input_tensor)
    sizes = [split_size] * -(-whole // split_size) if isinstance(split_size, int) else list(split_size)
    starts = [builtins.sum(sizes[:number]) for number in range(len(sizes))]
    lengths = [min(size, whole - start) for size, start in zip(sizes, starts, strict=True)]
    parts = [values.narrow(dim, start, length) for start, length in zip(starts, lengths, strict=True)]
    return [store_result(part, input_tensor) for part in parts]


def clone(input_tensor: Tensor, *, memory_config: MemoryConfig | None = None, dtype: Any = None) -> Tensor:
    """Copy a tensor."""
    return store_result(load_values(input_tensor), input_tensor, dtype=dtype, memory_config=memory_config)


def move(input_tensor: Tensor, *, memory_config: MemoryConfig | None = None) -> Tensor:
    """Move a tensor to the highest free address, or to another memory config. The tensor keeps its values."""
    if memory_config is not None and memory_config != input_tensor.memory_config():
        return move_to_config(input_tensor, memory_config)
    storage = input_tensor.storage
    if not storage.in_banks and hasattr(storage, "buffer"):
        input_tensor.allocation.device.arena.move_to_top(storage.buffer)
    return input_tensor


def untilize_with_unpadding(
    input_tensor: Tensor, output_tensor_end: Sequence[int], *, memory_config: MemoryConfig | None = None, **options: Any
) -> Tensor:
    """Convert a tensor to rows, and keep the values up to `output_tensor_end` (inclusive) of every dim."""
    refuse_unsupported("untilize_with_unpadding", options, TILIZE_NO_EFFECT)
    values = load_values(input_tensor)
    for dim, last in enumerate(output_tensor_end):
        values = values.narrow(dim, 0, last + 1)
    return store_result(values, input_tensor, layout=Layout.ROW_MAJOR, memory_config=memory_config)


def interleaved_to_sharded(
    input_tensor: Tensor, memory_config: MemoryConfig, output_dtype: DataType | None = None, **options: Any
) -> Tensor:
    """Copy a tensor to the shards of a memory config, in the format `output_dtype` (default: unchanged)."""
    refuse_unsupported("interleaved_to_sharded", options, ("keep_l1_aligned",))
    return to_memory_config(input_tensor, memory_config, output_dtype)


def sharded_to_interleaved(
    input_tensor: Tensor,
    memory_config: MemoryConfig | None = None,
    output_dtype: DataType | None = None,
    **options: Any,
) -> Tensor:
    """Copy a sharded tensor to interleaved pages, by default in global memory and in its format."""
    refuse_unsupported("sharded_to_interleaved", options, ("is_l1_aligned",))
    return to_memory_config(input_tensor, memory_config or MemoryConfig(), output_dtype)


def tilize(
    input_tensor: Tensor, *, memory_config: MemoryConfig | None = None, dtype: DataType | None = None, **options: Any
) -> Tensor:
    """Convert a tensor to tiles, in another format and memory config if they are set."""
    refuse_unsupported("tilize", options, TILIZE_NO_EFFECT)
    return to_layout(input_tensor, Layout.TILE, dtype, memory_config)


def untilize(input_tensor: Tensor, *, memory_config: MemoryConfig | None = None, **options: Any) -> Tensor:
    """Convert a tensor to rows, in another memory config if it is set."""
    refuse_unsupported("untilize", options, TILIZE_NO_EFFECT)
    return to_layout(input_tensor, Layout.ROW_MAJOR, memory_config=memory_config)
