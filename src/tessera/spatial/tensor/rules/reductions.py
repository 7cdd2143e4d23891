"""Reductions: over dims that a rank has whole they are local; over split dims the parts are combined."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from tessera.geometry import Box, Interval
from tessera.spatial.tensor.gradient_buckets import sum_whole
from tessera.spatial.tensor.layout import TensorLayout, make_layout, make_whole, replace_dim
from tessera.spatial.tensor.split_tensor import (
    NO_RULE,
    Call,
    SplitGroup,
    SplitTensor,
    gather,
    get_local,
    move_split,
    rule,
)

aten = torch.ops.aten


def _read_dims(tensor: Tensor, dims: Any) -> list[int]:
    if dims is None or (isinstance(dims, list | tuple) and not dims):
        return list(range(tensor.dim()))
    return sorted(dim % max(1, tensor.dim()) for dim in ([dims] if isinstance(dims, int) else dims))


def _reduce_layout(layout: TensorLayout, dims: Sequence[int], keep: bool) -> TensorLayout:
    """Return the layout without some dims, which every rank has whole (with `keep`: as dims of size one)."""
    factors, at = [], []
    for dim, sizes in enumerate(layout.factors):
        if dim not in dims:
            factors.append(sizes)
            at += list(layout.positions[dim])
        elif keep:
            factors.append(())
    return make_layout(factors, [Box(tuple(box.dims[i] for i in at)) for box in layout.boxes])


def _is_local(tensor: SplitTensor, dims: Sequence[int]) -> bool:
    return not set(dims) & set(tensor.layout_on_ranks.split_dims)


def combine_parts(
    tensor: SplitTensor, partial: Tensor, dims: Sequence[int], *, fill: float = 0.0, slots: bool = False
) -> Tensor:
    """Combine a reduction of every rank's part (with the reduced dims kept) over all ranks; return it whole.

    Sums are added. With `slots`, the values of all ranks are returned along a new first dim, missing ones as `fill`.
    """
    every, shape = _place_part(tensor, partial, dims, fill, slots)
    return tensor.group.sum(every).reshape(shape)


def _place_part(
    tensor: SplitTensor, partial: Tensor, dims: Sequence[int], fill: float = 0.0, slots: bool = False
) -> tuple[Tensor, list[int]]:
    """Return this rank's contribution to the reduced tensor, and the shape of the reduced tensor."""
    layout, group = tensor.layout_on_ranks, tensor.group
    kept = [dim for dim in range(tensor.dim()) if dim not in dims]
    sizes: list[int] = []
    index: list[slice] = []
    for dim in range(tensor.dim()):
        for at in layout.positions[dim]:
            sizes.append(layout.sizes[at] if dim in kept else 1)
            index.append(layout.boxes[group.rank].dims[at].slice if dim in kept else slice(0, 1))
    shape = [tensor.shape[dim] if dim in kept else 1 for dim in range(tensor.dim())]
    lengths = [
        len(layout.boxes[group.rank].dims[at]) if dim in kept else 1
        for dim in range(tensor.dim())
        for at in layout.positions[dim]
    ]
    if not slots:
        total = partial.new_zeros(sizes)
        if partial.numel():
            total[tuple(index)] = partial.reshape(lengths)
        return total, shape
    every = partial.new_zeros(group.ranks, *sizes)
    every[group.rank] = fill
    if partial.numel():
        every[group.rank][tuple(index)] = partial.reshape(lengths)
    return every, [group.ranks, *shape]


def _finish(call: Call, whole: Tensor, dims: Sequence[int], keep: bool) -> SplitTensor:
    if not keep:
        whole = whole.reshape([size for dim, size in enumerate(whole.shape) if dim not in dims])
    return call.wrap(whole, make_whole(whole.shape, call.group.ranks))


@rule(aten.sum.dim_IntList, aten.sum.default, aten.mean.dim, aten.mean.default)
def add_up(call: Call) -> Any:
    tensor = call.args[0]
    is_whole_reduction = call.func in (aten.sum.default, aten.mean.default)
    dims = _read_dims(tensor, None if is_whole_reduction else call.get(1, "dim"))
    keep = False if is_whole_reduction else bool(call.get(2, "keepdim", False))
    dtype = call.kwargs.get("dtype")
    mean = call.func in (aten.mean.dim, aten.mean.default)
    layout = tensor.layout_on_ranks
    local = get_local(tensor)
    if _is_local(tensor, dims):
        return call.wrap(call.func(local, *call.args[1:], **call.kwargs), _reduce_layout(layout, dims, keep))
    if not layout.is_exclusive or (mean and dtype is None and not (tensor.is_floating_point() or tensor.is_complex())):
        return NO_RULE
    partial = local.sum(dims, keepdim=True, dtype=_get_sum_dtype(tensor, dtype))
    result_dtype = dtype or (tensor.dtype if tensor.is_floating_point() or tensor.is_complex() else torch.int64)
    if not mean and result_dtype.is_floating_point:
        own, shape = _place_part(tensor, partial, dims)
        kept = [size for dim, size in enumerate(shape) if keep or dim not in dims]
        return sum_whole(call.group, own.reshape(kept), result_dtype)
    total = combine_parts(tensor, partial, dims)
    if mean:
        total = total / prod(tensor.shape[dim] for dim in dims)
    return _finish(call, total.to(result_dtype), dims, keep)


def _get_sum_dtype(tensor: Tensor, dtype: torch.dtype | None) -> torch.dtype | None:
    """Return the dtype of partial sums: 16-bit floats are added up in float32, as torch does inside of one sum."""
    wanted = dtype or tensor.dtype
    return torch.float32 if wanted in (torch.float16, torch.bfloat16) else dtype


EXTREMES = {
    aten.amax.default: (torch.amax, float("-inf")),
    aten.amin.default: (torch.amin, float("inf")),
    aten.max.default: (torch.amax, float("-inf")),
    aten.min.default: (torch.amin, float("inf")),
}


@rule(*EXTREMES)
def find_extreme(call: Call) -> Any:
    tensor = call.args[0]
    function, fill = EXTREMES[call.func]
    dims = _read_dims(tensor, call.get(1, "dim", ()))
    keep = bool(call.get(2, "keepdim", False))
    layout, local = tensor.layout_on_ranks, get_local(tensor)
    if _is_local(tensor, dims):
        return call.wrap(function(local, dims, keepdim=keep), _reduce_layout(layout, dims, keep))
    if not tensor.is_floating_point():
        return NO_RULE
    partial = function(local, dims, keepdim=True) if local.numel() else local.new_empty(0)
    every = combine_parts(tensor, partial, dims, fill=fill, slots=True)
    return _finish(call, function(every, 0), dims, keep)


@rule(aten.any.default, aten.any.dim, aten.any.dims, aten.all.default, aten.all.dim, aten.all.dims)
def test_all(call: Call) -> Any:
    tensor = call.args[0]
    if call.get(1, "dim", None) in ([], ()):
        return NO_RULE  # unlike other reductions, torch then compares element by element
    dims = _read_dims(tensor, call.get(1, "dim", None))
    keep = bool(call.get(2, "keepdim", False))
    layout, local = tensor.layout_on_ranks, get_local(tensor)
    if not _is_local(tensor, dims):
        if not layout.is_exclusive or tensor.dtype == torch.uint8:
            return NO_RULE
        is_any = "any" in str(call.func)
        counted = (local != 0) if is_any else (local == 0)
        total = combine_parts(tensor, counted.sum(dims, keepdim=True), dims)
        result = total > 0 if is_any else total == 0
        return _finish(call, result, dims, keep)
    return call.wrap(call.func(local, *call.args[1:], **call.kwargs), _reduce_layout(layout, dims, keep))


@rule(aten.var.correction, aten.std.correction, aten.var_mean.correction, aten.std_mean.correction)
def compute_variance(call: Call) -> Any:
    tensor = call.args[0]
    dims = _read_dims(tensor, call.get(1, "dim", None))
    keep, correction = bool(call.kwargs.get("keepdim", False)), call.kwargs.get("correction")
    layout, local = tensor.layout_on_ranks, get_local(tensor)
    with_mean = call.func in (aten.var_mean.correction, aten.std_mean.correction)
    if _is_local(tensor, dims):
        results = call.func(local, *call.args[1:], **call.kwargs)
        target = _reduce_layout(layout, dims, keep)
        return tuple(call.wrap(part, target) for part in results) if with_mean else call.wrap(results, target)
    if not layout.is_exclusive or not tensor.is_floating_point():
        return NO_RULE
    count = prod(tensor.shape[dim] for dim in dims)
    wide = local.double()
    mean = combine_parts(tensor, wide.sum(dims, keepdim=True), dims) / count
    from tessera.spatial.tensor.rules.pointwise import localise

    own_mean = localise(mean, layout, call.group)
    squares = combine_parts(tensor, (wide - own_mean).square().sum(dims, keepdim=True), dims)
    variance = squares / max(0, count - (1 if correction is None else correction))
    spread = variance.sqrt() if call.func in (aten.std.correction, aten.std_mean.correction) else variance
    result = _finish(call, spread.to(tensor.dtype), dims, keep)
    return (result, _finish(call, mean.to(tensor.dtype), dims, keep)) if with_mean else result


@rule(aten.linalg_vector_norm.default)
def compute_norm(call: Call) -> Any:
    tensor, order, dims, keep = call.bind(("self", "ord", "dim", "keepdim"), (2, None, False))
    dims = _read_dims(tensor, dims)
    layout, local = tensor.layout_on_ranks, get_local(tensor)
    if _is_local(tensor, dims):
        return call.wrap(call.func(local, *call.args[1:], **call.kwargs), _reduce_layout(layout, dims, keep))
    if order not in (1, 2) or not layout.is_exclusive or call.kwargs.get("dtype") or not tensor.is_floating_point():
        return NO_RULE
    wide = local.double()
    partial = (wide.square() if order == 2 else wide.abs()).sum(dims, keepdim=True)
    total = combine_parts(tensor, partial, dims)
    return _finish(call, (total.sqrt() if order == 2 else total).to(tensor.dtype), dims, keep)


# Operators along one dim, which must be whole: position of `dim` among the arguments and its default.
DIM_ARGUMENTS: dict[Any, tuple[int, Any]] = {
    aten.max.dim: (1, None),
    aten.min.dim: (1, None),
    aten.argmax.default: (1, None),
    aten.argmin.default: (1, None),
    aten.sort.default: (1, -1),
    aten.argsort.default: (1, -1),
    aten.topk.default: (2, -1),
    aten.logsumexp.default: (1, None),
    aten.prod.dim_int: (1, None),
    aten.median.dim: (1, None),
    aten.kthvalue.default: (2, -1),
    aten.cummax.default: (1, None),
    aten.cummin.default: (1, None),
}


@rule(*DIM_ARGUMENTS)
def compute_along_dim(call: Call) -> Any:
    """Compute an operator that needs one dim whole; the split moves to another dim if necessary."""
    position, default = DIM_ARGUMENTS[call.func]
    tensor, dim = call.args[0], call.get(position, "dim", default)
    if isinstance(dim, list | tuple):
        if len(dim) != 1:
            return NO_RULE
        dim = dim[0]
    if dim is None or tensor.dim() == 0:
        return NO_RULE
    dim %= tensor.dim()
    local, layout = move_split(tensor, [dim], call.group)
    if layout.has_empty_part and not layout.is_whole:
        return NO_RULE
    results = call.func(local, *call.args[1:], **call.kwargs)

    def wrap(part: Tensor) -> SplitTensor:
        if part.dim() < local.dim():
            return call.wrap(part, _reduce_layout(layout, [dim], False))
        size = part.shape[dim]
        return call.wrap(part, replace_dim(layout, dim, size, [Interval(0, size)] * layout.ranks))

    return tuple(map(wrap, results)) if isinstance(results, tuple | list) else wrap(results)


__all__ = ["SplitGroup", "gather"]
