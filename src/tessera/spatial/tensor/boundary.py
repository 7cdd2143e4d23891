"""The boundary between plain and split tensors, differentiable in both directions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tessera.spatial.tensor import rules as _rules  # registers the rules
from tessera.spatial.tensor.layout import TensorLayout
from tessera.spatial.tensor.split_tensor import SplitGroup, SplitTensor, gather, redistribute

RULES_LOADED = bool(_rules.__all__)


def split_whole(whole: Tensor, layout: TensorLayout, group: SplitGroup, *, is_part: bool = False) -> Tensor:
    """Return a split tensor from a plain tensor that every rank has; with `is_part`, from this rank's own part."""
    function = _Wrap if is_part else _Split
    result: Tensor = function.apply(whole, layout, group)  # type: ignore[no-untyped-call]
    return result


def change_layout(tensor: Tensor, layout: TensorLayout) -> Tensor:
    """Redistribute a split tensor to a layout, differentiably."""
    if not isinstance(tensor, SplitTensor) or tensor.layout_on_ranks is layout:
        return tensor
    result: Tensor = _ChangeLayout.apply(tensor, layout)  # type: ignore[no-untyped-call]
    return result


def join_parts(tensor: Tensor) -> Tensor:
    """Return the whole tensor as a plain tensor on every rank; plain tensors are returned as they are."""
    if not isinstance(tensor, SplitTensor):
        return tensor
    result: Tensor = _Join.apply(tensor)  # type: ignore[no-untyped-call]
    return result


class _Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, whole: Tensor, layout: TensorLayout, group: SplitGroup) -> Tensor:
        return SplitTensor(redistribute(whole.detach(), layout, group).clone(), layout, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return join_parts(grad), None, None


class _Wrap(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor, layout: TensorLayout, group: SplitGroup) -> Tensor:
        ctx.layout_on_ranks, ctx.group = layout, group
        return SplitTensor(part.detach(), layout, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return redistribute(grad, ctx.layout_on_ranks, ctx.group), None, None


class _ChangeLayout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: SplitTensor, layout: TensorLayout) -> Tensor:
        ctx.layout_on_ranks = tensor.layout_on_ranks
        part = redistribute(tensor, layout, tensor.group)
        return SplitTensor(part.clone() if tensor.layout_on_ranks.is_whole else part, layout, tensor.group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return change_layout(grad, ctx.layout_on_ranks), None


class _Join(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: SplitTensor) -> Tensor:
        ctx.layout_on_ranks, ctx.group = tensor.layout_on_ranks, tensor.group
        whole = gather(tensor)
        is_shared = whole.untyped_storage().data_ptr() == tensor.local.untyped_storage().data_ptr()
        return whole.clone() if is_shared else whole

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad if isinstance(grad, SplitTensor) else split_whole(grad, ctx.layout_on_ranks, ctx.group)
