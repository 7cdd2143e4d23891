"""Joins: concatenation, stacking, repetition, rotation and padding with constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tessera.geometry import Interval
from tessera.spatial.tensor.layout import TensorLayout, insert_dim, replace_dim
from tessera.spatial.tensor.margins import find_wide_parts, join_wide_parts
from tessera.spatial.tensor.rules.pointwise import choose_layout
from tessera.spatial.tensor.rules.views import narrow
from tessera.spatial.tensor.split_tensor import NO_RULE, Call, SplitGroup, SplitTensor, get_local, redistribute, rule

aten = torch.ops.aten


@rule(aten.cat.default)
def concatenate(call: Call) -> Any:
    tensors, dim = call.bind(("tensors", "dim"), (0,))
    tensors = [tensor for tensor in tensors if tensor.dim() != 1 or tensor.shape[0]]  # torch skips these
    if len({tensor.dim() for tensor in tensors}) != 1:
        return NO_RULE
    return join(tensors, dim % tensors[0].dim(), call.group)


def join(tensors: Sequence[Tensor], dim: int, group: SplitGroup) -> Any:
    """Return the concatenation of split and plain tensors along a dim."""
    shape = list(tensors[0].shape)
    shape[dim] = sum(tensor.shape[dim] for tensor in tensors)
    layout = _choose_layout(tensors, dim, shape, group)
    if layout is None:
        return NO_RULE
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    if dim not in layout.split_dims:
        wide = _join_margins(tensors, dim, layout, group)
        if wide is not None:
            return wide
        parts = []
        for tensor in tensors:
            size = tensor.shape[dim]
            target = replace_dim(layout, dim, size, [Interval(0, size)] * group.ranks)
            parts.append(redistribute(tensor, target, group))
        return SplitTensor(torch.cat(parts, dim), layout, group)
    like = next(tensor for tensor in tensors if isinstance(tensor, SplitTensor))
    local = get_local(like).new_empty(layout.get_local_shape(group.rank), dtype=dtype)
    result = SplitTensor(local, layout, group)
    start = 0
    for tensor in tensors:
        piece = narrow(result, dim, start, start + tensor.shape[dim])
        piece.local.copy_(redistribute(tensor, piece.layout_on_ranks, group))
        start += tensor.shape[dim]
    return result


def _join_margins(tensors: Sequence[Tensor], dim: int, layout: TensorLayout, group: SplitGroup) -> SplitTensor | None:
    """Return the concatenation with the common margin of the operands; None if they have none."""
    if group.halo_depth == 1:
        return None
    wides = []
    for tensor in tensors:
        own = replace_dim(layout, dim, tensor.shape[dim], [Interval(0, tensor.shape[dim])] * group.ranks)
        wide = find_wide_parts([tensor], own, group)
        if wide is None:
            return None
        wides.append(wide)
    return join_wide_parts(wides, dim, layout, group)


def _choose_layout(tensors: Sequence[Tensor], dim: int, shape: Sequence[int], group: SplitGroup) -> TensorLayout | None:
    """Return the layout of a concatenation: the layout of its operands, or tiles if they are split along the dim."""
    split = [t for t in tensors if isinstance(t, SplitTensor) and not t.layout_on_ranks.is_whole]
    if not split:
        whole = next(t for t in tensors if isinstance(t, SplitTensor)).layout_on_ranks
        return replace_dim(whole, dim, shape[dim], [Interval(0, shape[dim])] * group.ranks)
    layouts = [t.layout_on_ranks for t in split]
    exclusive = [layout for layout in layouts if layout.is_exclusive and dim not in layout.split_dims]
    if exclusive:
        return replace_dim(exclusive[0], dim, shape[dim], [Interval(0, shape[dim])] * group.ranks)
    tiles = group.get_tiles(shape, len(shape) - 2) if len(shape) > 2 else None
    if tiles is not None and dim in tiles.split_dims:
        return tiles
    return None


@rule(aten.stack.default)
def stack(call: Call) -> Any:
    tensors, dim = call.bind(("tensors", "dim"), (0,))
    dim %= tensors[0].dim() + 1
    pieces = []
    for tensor in tensors:
        if isinstance(tensor, SplitTensor):
            pieces.append(call.wrap(get_local(tensor).unsqueeze(dim), insert_dim(tensor.layout_on_ranks, dim)))
        else:
            pieces.append(tensor.unsqueeze(dim))
    return join(pieces, dim, call.group)


@rule(aten.roll.default)
def roll(call: Call) -> Any:
    tensor, shifts, dims = call.bind(("self", "shifts", "dims"), ([],))
    shifts, dims = ([value] if isinstance(value, int) else list(value) for value in (shifts, dims))
    if not dims:
        return NO_RULE
    result = tensor
    for shift, dim in zip(shifts, dims, strict=True):
        dim %= tensor.dim()
        size = tensor.shape[dim]
        cut = (-shift) % size if size else 0
        if not cut:
            continue
        if dim not in result.layout_on_ranks.split_dims:
            result = call.wrap(get_local(result).roll(shift, dim), result.layout_on_ranks)
            continue
        parts = [narrow(result, dim, cut, size), narrow(result, dim, 0, cut)]
        if any(part is NO_RULE for part in parts):
            return NO_RULE
        result = join(parts, dim, call.group)
        if result is NO_RULE:
            return NO_RULE
    return call.wrap(get_local(result).clone(), result.layout_on_ranks) if result is tensor else result


@rule(aten.flip.default)
def flip(call: Call) -> Any:
    tensor, dims = call.args
    if {dim % tensor.dim() for dim in dims} & set(tensor.layout_on_ranks.split_dims):
        return NO_RULE
    return call.wrap(get_local(tensor).flip(dims), tensor.layout_on_ranks)


@rule(aten.repeat.default)
def repeat(call: Call) -> Any:
    tensor, counts = call.args
    if len(counts) != tensor.dim() or any(
        count != 1 and dim in tensor.layout_on_ranks.split_dims for dim, count in enumerate(counts)
    ):
        return NO_RULE
    layout = tensor.layout_on_ranks
    for dim, count in enumerate(counts):
        if count != 1:
            size = tensor.shape[dim] * count
            layout = replace_dim(layout, dim, size, [Interval(0, size)] * layout.ranks)
    return call.wrap(get_local(tensor).repeat(counts), layout)


@rule(aten.index.Tensor)
def index(call: Call) -> Any:
    """Index a dim that every rank holds whole with a plain list of indices."""
    tensor, indices = call.args
    if not isinstance(tensor, SplitTensor):
        return NO_RULE
    used = [(dim, value) for dim, value in enumerate(indices) if value is not None]
    if len(used) != 1:
        return NO_RULE
    ((dim, value),) = used
    if isinstance(value, SplitTensor) or value.dim() != 1 or dim in tensor.layout_on_ranks.split_dims:
        return NO_RULE
    local = aten.index.Tensor(get_local(tensor), indices)
    size = local.shape[dim]
    return call.wrap(local, replace_dim(tensor.layout_on_ranks, dim, size, [Interval(0, size)] * call.group.ranks))


__all__ = ["choose_layout", "join"]
