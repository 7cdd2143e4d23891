"""Weights on all ranks: equal values from rank 0, and all-reduces of many tensors in one message."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tessera.errors import TesseraError
from tessera.transport.transport import Transport

# Integer types by size in bytes.
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
MESSAGE_BYTES = 1 << 24  # of a broadcast of weights; a larger weight is a message of its own
# An all-reduce: `Transport.all_reduce`, or `HalfPrecisionSum`, which sends float16.
AllReduce = Callable[[Tensor], None]


def broadcast_weights(model: nn.Module, transport: Transport) -> None:
    """Copy the weights and buffers of rank 0 to all ranks, bit by bit.

    Weights that are sharded already, by `fully_shard` for example, are gathered first, one at a time.
    """
    plain = []
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.device.type == "meta":
            raise TesseraError(
                "weights on the meta device have no values", do="load the weights first, or pass broadcast=False"
            )
        if is_dtensor(tensor):
            _broadcast_sharded(tensor.detach(), transport)
        else:
            plain.append(tensor)
    for tensors in _group([_view_bits(tensor.detach()) for tensor in plain]):
        contributions = tensors if transport.rank == 0 else [None] * len(tensors)
        for tensor, agreed in zip(
            tensors, all_reduce_tensors(contributions, tensors, transport.all_reduce), strict=True
        ):
            tensor.copy_(agreed)


def _group(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Divide tensors into messages of at most MESSAGE_BYTES, so that no copy of all weights is needed."""
    group: list[Tensor] = []
    for tensor in tensors:
        if group and sum(other.nbytes for other in group) + tensor.nbytes > MESSAGE_BYTES:
            yield group
            group = []
        group.append(tensor)
    if group:
        yield group


def is_dtensor(tensor: Tensor) -> bool:
    """Return whether a tensor is a `DTensor`; the module of DTensors takes long to load."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def _broadcast_sharded(tensor: Any, transport: Transport) -> None:
    """Copy the DTensor of rank 0 to all ranks, each of which keeps its own shard."""
    from torch.distributed.tensor import distribute_tensor

    whole = tensor.full_tensor()
    bits = _view_bits(whole)
    contribution = bits if transport.rank == 0 else None
    (agreed,) = all_reduce_tensors([contribution], [bits], transport.all_reduce)
    bits.copy_(agreed)
    shard = distribute_tensor(whole, tensor.device_mesh, tensor.placements, src_data_rank=None)
    tensor.to_local().copy_(shard.to_local())


def describe_weights(model: nn.Module) -> int:
    """Return a number that is equal for models with parameters and buffers of the same names, shapes and dtypes."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    text = repr([(name, tuple(tensor.shape), str(tensor.dtype)) for name, tensor in tensors])
    return zlib.crc32(text.encode())


def _view_bits(tensor: Tensor) -> Tensor:
    """View a tensor of any dtype, including bool, as integers, which can be all-reduced."""
    plain = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return plain.view(INTEGERS[plain.element_size()])


def all_reduce_tensors(tensors: Sequence[Tensor | None], like: Sequence[Tensor], all_reduce: AllReduce) -> list[Tensor]:
    """All-reduce tensors. Each result has the shape and strides of its entry in `like`; None counts as zeros.

    All tensors of one dtype and device are sent in one message.
    """
    sums = list(like)
    for dtype, device in dict.fromkeys((tensor.dtype, tensor.device) for tensor in like):
        chosen = [number for number, tensor in enumerate(like) if (tensor.dtype, tensor.device) == (dtype, device)]
        flat = torch.empty(sum(like[number].numel() for number in chosen), dtype=dtype, device=device)
        parts = torch.split(flat, [like[number].numel() for number in chosen])
        for number, part in zip(chosen, parts, strict=True):
            sums[number] = _view_like(like[number], part)
            tensor = tensors[number]
            if tensor is None:
                sums[number].zero_()
            else:
                sums[number].copy_(tensor)
        all_reduce(flat)
    return sums


def _view_like(like: Tensor, part: Tensor) -> Tensor:
    """View a part of a flat tensor in the shape of `like`, with the strides of `like` if `like` has no gaps."""
    layouts = [torch.contiguous_format, torch.channels_last] if like.dim() == 4 else [torch.contiguous_format]
    if any(like.is_contiguous(memory_format=layout) for layout in layouts):
        return part.as_strided(like.shape, like.stride(), part.storage_offset())
    return part.view(like.shape)
