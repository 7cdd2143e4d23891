"""The sum over the ranks: of the weights' gradients, each rank having found a part of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tessera.transport.transport import Transport

# What the bits of a number are as an integer, by its bytes.
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
# Replaces numbers by their sums over the ranks: a transport's `all_reduce`, or `HalfSum`, which sends float16.
Add = Callable[[Tensor], None]


def with_summed_gradients(weights: Mapping[str, Tensor], add: Add) -> dict[str, Tensor]:
    """The same weights, whose gradients are summed over the ranks on their way back.

    That happens inside of backward, when the last of them is there: what then arrives at the weights is right, and
    may be added to what they have.
    """
    found = _SumGradients.apply(add, *weights.values())  # type: ignore[no-untyped-call]
    return dict(zip(weights, found, strict=True))


def take_over_weights(model: nn.Module, transport: Transport) -> None:
    """Every rank gets the weights and buffers of rank 0, bit by bit: a cut network is one network."""
    own = [_bits(tensor.detach()) for tensor in (*model.parameters(), *model.buffers())]
    given = own if transport.rank == 0 else [None] * len(own)
    for tensor, agreed in zip(own, summed(given, own, transport.all_reduce), strict=True):
        tensor.copy_(agreed)


def _bits(tensor: Tensor) -> Tensor:
    """The memory of a tensor as integers, which ranks can add whatever the dtype: booleans too."""
    plain = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return plain.view(INTEGERS[plain.element_size()])


def summed(tensors: Sequence[Tensor | None], like: Sequence[Tensor], add: Add) -> list[Tensor]:
    """The sum of each tensor over the ranks, in the shape and layout of its like; None counts as zeros.

    All of one dtype travel as one message.
    """
    found = list(like)
    for dtype in dict.fromkeys(tensor.dtype for tensor in like):
        chosen = [number for number, tensor in enumerate(like) if tensor.dtype == dtype]
        flat = torch.empty(sum(like[number].numel() for number in chosen), dtype=dtype)
        parts = torch.split(flat, [like[number].numel() for number in chosen])
        for number, part in zip(chosen, parts, strict=True):
            found[number] = _laid_out_like(like[number], part)
            tensor = tensors[number]
            if tensor is None:
                found[number].zero_()
            else:
                found[number].copy_(tensor)
        add(flat)
    return found


def _laid_out_like(like: Tensor, part: Tensor) -> Tensor:
    """A piece of a flat tensor as one of this shape, and if that leaves no gaps, of these strides."""
    layouts = [torch.contiguous_format, torch.channels_last] if like.dim() == 4 else [torch.contiguous_format]
    if any(like.is_contiguous(memory_format=layout) for layout in layouts):
        return part.as_strided(like.shape, like.stride(), part.storage_offset())
    return part.view(like.shape)


class _SumGradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, add: Add, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.add, ctx.weights = add, [weight.detach() for weight in weights]
        return tuple(weight.view_as(weight) for weight in weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        first = ctx.weights[0]
        has = torch.tensor([grad is not None for grad in grads], dtype=first.dtype)
        *found, have = summed((*grads, has), (*ctx.weights, has), ctx.add)
        # No rank found a gradient: there is none, as uncut, and not one of zeros.
        return None, *(grad if some else None for grad, some in zip(found, have.tolist(), strict=True))
