"""Weights on all ranks: equal values from rank 0, and sums of many tensors in one message."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from tessera.transport.transport import Transport

# Integer types by size in bytes.
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# Replaces values by their sums over the ranks: `Transport.all_reduce`, or `HalfPrecisionSum`, which sends float16.
Add = Callable[[Tensor], None]


def broadcast_weights(model: nn.Module, transport: Transport) -> None:
    """Copy the weights and buffers of rank 0 to all ranks, bit by bit."""
    tensors = [_view_bits(tensor.detach()) for tensor in (*model.parameters(), *model.buffers())]
    contributions = tensors if transport.rank == 0 else [None] * len(tensors)
    for tensor, agreed in zip(tensors, sum_tensors(contributions, tensors, transport.all_reduce), strict=True):
        tensor.copy_(agreed)


def describe_weights(model: nn.Module) -> int:
    """Return a number that is equal for models with parameters and buffers of the same names, shapes and dtypes."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    text = repr([(name, tuple(tensor.shape), str(tensor.dtype)) for name, tensor in tensors])
    return zlib.crc32(text.encode())


def _view_bits(tensor: Tensor) -> Tensor:
    """View a tensor of any dtype, including bool, as integers, which can be summed over ranks."""
    plain = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return plain.view(INTEGERS[plain.element_size()])


def sum_tensors(tensors: Sequence[Tensor | None], like: Sequence[Tensor], add: Add) -> list[Tensor]:
    """Return the sum of each tensor over the ranks, with the shape and strides of its entry in `like`; None is zeros.

    All tensors of one dtype are summed in one message.
    """
    sums = list(like)
    for dtype in dict.fromkeys(tensor.dtype for tensor in like):
        chosen = [number for number, tensor in enumerate(like) if tensor.dtype == dtype]
        flat = torch.empty(sum(like[number].numel() for number in chosen), dtype=dtype)
        parts = torch.split(flat, [like[number].numel() for number in chosen])
        for number, part in zip(chosen, parts, strict=True):
            sums[number] = _view_like(like[number], part)
            tensor = tensors[number]
            if tensor is None:
                sums[number].zero_()
            else:
                sums[number].copy_(tensor)
        add(flat)
    return sums


def _view_like(like: Tensor, part: Tensor) -> Tensor:
    """View a part of a flat tensor in the shape of `like`, with the strides of `like` if `like` has no gaps."""
    layouts = [torch.contiguous_format, torch.channels_last] if like.dim() == 4 else [torch.contiguous_format]
    if any(like.is_contiguous(memory_format=layout) for layout in layouts):
        return part.as_strided(like.shape, like.stride(), part.storage_offset())
    return part.view(like.shape)
