"""Views and changes of shape: every rank views its own part."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch

from tessera.geometry import Box, Interval
from tessera.spatial.tensor.layout import (
    TensorLayout,
    expand,
    insert_dim,
    make_layout,
    make_whole,
    permute,
    remove_dim,
    reshape,
    slice_dim,
    split_dims_evenly,
)
from tessera.spatial.tensor.split_tensor import (
    NO_RULE,
    Call,
    CopiedView,
    SplitGroup,
    SplitTensor,
    get_local,
    get_version,
    redistribute,
    reshape_split,
    rule,
)

aten = torch.ops.aten


@rule(aten.detach.default, aten.alias.default)
def detach(call: Call) -> Any:
    """Return the same tensor without its autograd history."""
    tensor = call.args[0]
    result = SplitTensor(tensor.local, tensor.layout_on_ranks, call.group, tensor.stride())
    result.pending, result.margin = tensor.pending, tensor.margin
    return result


@rule(aten.view.default, aten._unsafe_view.default, aten._reshape_alias.default)
def view(call: Call) -> Any:
    tensor, shape = call.args[0], _resolve_shape(call.args[0], call.args[1])
    result = reshape_split(tensor, shape)
    if result is not None:
        return result
    source = align_to_reshape(tensor.layout_on_ranks, shape, call.group)
    call.group.log.mark("moved" if source is not None else "whole")
    if source is None:
        source = make_whole(tensor.shape, call.group.ranks)
    target = reshape(source, shape) or make_whole(shape, call.group.ranks)
    part = redistribute(tensor, source, call.group).reshape(target.get_local_shape(call.group.rank))
    result = call.wrap(part, target)
    result.source = CopiedView(tensor, get_version(tensor), lambda whole: whole.reshape(shape))
    return result


def _resolve_shape(tensor: SplitTensor, shape: Sequence[int]) -> tuple[int, ...]:
    known = prod(size for size in shape if size != -1)
    return tuple(tensor.numel() // known if size == -1 else size for size in shape)


def align_to_reshape(layout: TensorLayout, shape: tuple[int, ...], group: SplitGroup) -> TensorLayout | None:
    """Return a layout of the same tensor that can be reshaped part by part, with equally many elements per rank.

    Each split factor is divided in units of the sizes that the new shape cuts it into; if that is impossible, the first
    dim that can be split in the old and in the new shape is split over all ranks.
    """
    key = "align", layout, shape
    if key not in group.plans:
        group.plans[key] = _find_aligned(layout, shape, group.ranks)
    aligned: TensorLayout | None = group.plans[key]
    return aligned


def _find_aligned(layout: TensorLayout, shape: tuple[int, ...], ranks: int) -> TensorLayout | None:
    if layout.is_plain and layout.is_exclusive:
        for unit in _list_units(layout.shape, shape):
            boxes = [_snap(box, layout, unit) for box in layout.boxes]
            candidate = make_layout(layout.factors, boxes)
            if candidate.is_exclusive and reshape(candidate, shape) is not None:
                return candidate
    for dim, size in sorted(enumerate(layout.shape), key=lambda item: -item[1]):
        if size >= ranks:
            for parts in (ranks,):
                candidate = split_dims_evenly(layout.shape, (dim,), (parts,))
                if reshape(candidate, shape) is not None:
                    return candidate
    return None


def _list_units(old: tuple[int, ...], new: tuple[int, ...]) -> list[dict[int, int]]:
    """Return sizes of blocks of each old dim that a reshape divides into (blocks, size), as {dim: size}."""
    units: dict[int, int] = {}
    at = 0
    for dim, size in enumerate(old):
        if size == 1:
            continue
        while at < len(new) and new[at] == 1:
            at += 1
        if at == len(new):
            return []
        if new[at] == size:
            at += 1
            continue
        if new[at] < size and size % new[at] == 0:
            units[dim] = size // new[at]
            left = size
            while at < len(new) and left > 1 and left % new[at] == 0:
                left //= new[at]
                at += 1
            if left != 1:
                return []
        else:
            return []
    return [units] if units else []


def _snap(box: Box, layout: TensorLayout, units: dict[int, int]) -> Box:
    """Move the ends of a box to multiples of the units; two boxes that share an end keep sharing it."""
    dims = list(box.dims)
    for dim, unit in units.items():
        for at in layout.positions[dim]:
            size = layout.sizes[at]
            start, stop = (min(size, (end + unit // 2) // unit * unit) for end in (dims[at].start, dims[at].stop))
            dims[at] = Interval(start, size if dims[at].stop == size else stop)
    return Box(tuple(dims))


@rule(aten.permute.default)
def permute_dims(call: Call) -> Any:
    tensor, order = call.args
    order = [dim % tensor.dim() for dim in order]
    return call.wrap(get_local(tensor).permute(order), _permute(tensor, order))


def _permute(tensor: SplitTensor, order: Sequence[int]) -> TensorLayout:
    key = "permute", tensor.layout_on_ranks, tuple(order)
    plans = tensor.group.plans
    if key not in plans:
        plans[key] = permute(tensor.layout_on_ranks, order)
    layout: TensorLayout = plans[key]
    return layout


@rule(aten.transpose.int)
def transpose(call: Call) -> Any:
    tensor, first, second = call.args
    if tensor.dim() == 0:
        return tensor
    order = list(range(tensor.dim()))
    order[first], order[second] = order[second], order[first]
    return call.wrap(get_local(tensor).transpose(first, second), _permute(tensor, order))


@rule(aten.t.default)
def transpose_matrix(call: Call) -> Any:
    (tensor,) = call.args
    return call.wrap(get_local(tensor).t(), _permute(tensor, range(tensor.dim())[::-1]))


@rule(aten.unsqueeze.default)
def unsqueeze(call: Call) -> Any:
    tensor, dim = call.args
    dim %= tensor.dim() + 1
    return call.wrap(get_local(tensor).unsqueeze(dim), insert_dim(tensor.layout_on_ranks, dim))


@rule(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims)
def squeeze(call: Call) -> Any:
    tensor = call.args[0]
    dims = call.args[1] if len(call.args) > 1 else range(tensor.dim())
    chosen = {dim % max(1, tensor.dim()) for dim in ([dims] if isinstance(dims, int) else dims)}
    layout: TensorLayout | None = tensor.layout_on_ranks
    local = get_local(tensor)
    for dim in sorted(chosen, reverse=True):
        if tensor.dim() and tensor.shape[dim] == 1 and layout is not None:
            layout = remove_dim(layout, dim)
            local = local.squeeze(dim)
    return NO_RULE if layout is None else call.wrap(local, layout)


@rule(aten.expand.default)
def expand_dims(call: Call) -> Any:
    """Expand dims of size one; dims of images become tiles, so that no rank stores a whole image."""
    tensor, sizes = call.args[0], call.args[1]
    skip = len(sizes) - tensor.dim()
    shape = tuple(tensor.shape[dim - skip] if size == -1 else size for dim, size in enumerate(sizes))
    layout = tensor.layout_on_ranks
    key = "expand", layout, shape
    plans = call.group.plans
    if key not in plans:
        plans[key] = _expand_to_tiles(layout, shape, call.group)
    target = plans[key]
    if target is None:
        return NO_RULE
    return call.wrap(get_local(tensor).expand(target.get_local_shape(call.group.rank)), target)


def _expand_to_tiles(layout: TensorLayout, shape: tuple[int, ...], group: SplitGroup) -> TensorLayout | None:
    if layout.is_whole and len(shape) > 2:
        tiles = group.get_tiles(shape, len(shape) - 2)
        old = (1,) * (len(shape) - len(layout.shape)) + layout.shape
        if all(old[dim] == 1 and shape[dim] >= group.ranks for dim in tiles.split_dims):
            return tiles
    return expand(layout, shape)


@rule(aten.slice.Tensor)
def slice_tensor(call: Call) -> Any:
    tensor, dim, start, stop, step = call.bind(("self", "dim", "start", "end", "step"), (0, None, None, 1))
    dim %= tensor.dim()
    start, stop, step = slice(start, stop, step).indices(tensor.shape[dim])
    return narrow(tensor, dim, start, max(start, stop), step)


def narrow(tensor: SplitTensor, dim: int, start: int, stop: int, step: int = 1) -> Any:
    """Return `tensor[start:stop:step]` along a dim as a view of the parts; `NO_RULE` if a merged dim is cut."""
    layout, group = tensor.layout_on_ranks, tensor.group
    target = slice_dim(layout, dim, start, stop, step)
    if target is None:
        return NO_RULE
    local = get_local(tensor)
    if len(layout.factors[dim]) <= 1:
        own = layout.get_dim_intervals(dim)[group.rank]
        kept = target.get_dim_intervals(dim)[group.rank] if target.shape[dim] else Interval(0, 0)
        first = start + kept.start * step - own.start
        local = (
            local[(slice(None),) * dim + (slice(first, first + (len(kept) - 1) * step + 1, step),)]
            if len(kept)
            else local.narrow(dim, 0, 0)
        )
    return SplitTensor(local, target, group)


@rule(aten.select.int)
def select(call: Call) -> Any:
    tensor, dim, index = call.args
    dim %= tensor.dim()
    size = tensor.shape[dim]
    if dim in tensor.layout_on_ranks.split_dims or not -size <= index < size:
        return NO_RULE
    index %= size
    piece = narrow(tensor, dim, index, index + 1)
    if piece is NO_RULE:
        return NO_RULE
    layout = remove_dim(piece.layout_on_ranks, dim)
    return NO_RULE if layout is None else call.wrap(piece.local.squeeze(dim), layout)


@rule(aten.split.Tensor, aten.split_with_sizes.default)
def split(call: Call) -> Any:
    tensor, sizes, dim = call.bind(("self", "split_size", "dim"), (0,))
    sizes = call.kwargs.get("split_sizes", sizes)
    dim %= tensor.dim()
    total = tensor.shape[dim]
    if isinstance(sizes, int):
        sizes = [min(sizes, total - start) for start in range(0, max(1, total), max(1, sizes))]
    pieces, start = [], 0
    for size in sizes:
        piece = narrow(tensor, dim, start, start + size)
        if piece is NO_RULE:
            return NO_RULE
        pieces.append(piece)
        start += size
    return pieces


@rule(aten.unbind.int)
def unbind(call: Call) -> Any:
    tensor, dim = call.bind(("self", "dim"), (0,))
    dim %= tensor.dim()
    if dim in tensor.layout_on_ranks.split_dims:
        return NO_RULE
    pieces = [select(Call(aten.select.int, (tensor, dim, index), {}, call.group)) for index in range(tensor.shape[dim])]
    return NO_RULE if any(piece is NO_RULE for piece in pieces) else pieces


@rule(aten.slice_backward.default)
def slice_backward(call: Call) -> Any:
    """Place a gradient into zeros of the input's shape."""
    grad, shape, dim, start, stop, step = call.args
    return _place(call, grad, tuple(shape), dim, start, stop, step)


@rule(aten.select_backward.default)
def select_backward(call: Call) -> Any:
    grad, shape, dim, index = call.args
    dim %= len(shape)
    index %= shape[dim]
    piece = call.wrap(get_local(grad).unsqueeze(dim), insert_dim(grad.layout_on_ranks, dim))
    return _place(call, piece, tuple(shape), dim, index, index + 1, 1)


def _place(
    call: Call, grad: SplitTensor, shape: tuple[int, ...], dim: int, start: int | None, stop: int | None, step: int
) -> Any:
    """Return zeros of this shape with `grad` at `[start:stop:step]` along a dim."""
    dim %= len(shape)
    start, stop, step = slice(start, stop, step).indices(shape[dim])
    layout, group = grad.layout_on_ranks, call.group
    if dim not in layout.split_dims:
        from tessera.spatial.tensor.layout import replace_dim

        target = replace_dim(layout, dim, shape[dim], [Interval(0, shape[dim])] * group.ranks)
        local = get_local(grad)
        whole = local.new_zeros(target.get_local_shape(group.rank))
        whole[(slice(None),) * dim + (slice(start, stop, step),)] = local
        return call.wrap(whole, target)
    if not layout.is_plain:
        return NO_RULE
    target = group.get_tiles(shape, len(shape) - 2) if len(shape) > 2 else make_whole(shape, group.ranks)
    if dim not in target.split_dims or not target.is_plain:
        return NO_RULE
    result = call.wrap(get_local(grad).new_zeros(target.get_local_shape(group.rank)), target)
    piece = narrow(result, dim, start, max(start, stop), step)
    piece.local.copy_(redistribute(grad, piece.layout_on_ranks, group))
    return result


@rule(aten._conj.default, aten._neg_view.default)
def conjugate(call: Call) -> Any:
    """Conjugate or negate the local parts eagerly.

    torch only sets a lazy conj or neg bit, which operators on local parts would ignore.
    """
    tensor = call.args[0]
    function = torch.conj_physical if call.func is aten._conj.default else torch.neg
    result = call.wrap(function(get_local(tensor)), tensor.layout_on_ranks)
    result.source = CopiedView(tensor, get_version(tensor), call.func)
    return result
