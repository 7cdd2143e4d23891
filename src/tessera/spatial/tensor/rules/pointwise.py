"""Pointwise operators: every rank computes its part; operands are laid out like the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tessera.geometry import Box
from tessera.spatial.tensor.layout import TensorLayout, expand, make_layout, make_whole
from tessera.spatial.tensor.margins import WideParts, find_wide_parts
from tessera.spatial.tensor.split_tensor import (
    GENERIC_RULES,
    NO_RULE,
    Call,
    Rule,
    SplitGroup,
    SplitTensor,
    get_local,
    redistribute,
    rule,
    write_back,
)

aten = torch.ops.aten
# Operators that torch does not tag as pointwise.
POINTWISE = {
    aten.clone.default,
    aten._to_copy.default,
    aten.lift_fresh.default,
    aten.copy_.default,
    aten.fill_.Scalar,
    aten.fill_.Tensor,
    aten.zero_.default,
    aten.masked_fill.Scalar,
    aten.masked_fill.Tensor,
    aten.masked_fill_.Scalar,
    aten.masked_fill_.Tensor,
    aten._prelu_kernel.default,
    aten.isnan.default,
    aten._fake_quantize_learnable_per_tensor_affine.default,
    aten.native_dropout_backward.default,
    aten.view_as_real.default,
    aten.silu_backward.default,
    aten.hardswish_backward.default,
    aten.hardsigmoid_backward.default,
    aten.hardtanh_backward.default,
    aten.leaky_relu_backward.default,
    aten.elu_backward.default,
    aten.gelu_backward.default,
    aten.softplus_backward.default,
    aten.mish_backward.default,
    aten.threshold_backward.default,
    aten.log_sigmoid_backward.default,
    aten.softshrink_backward.default,
    aten.hardshrink_backward.default,
} - {aten.view_as_real.default}


def find_pointwise(func: Any) -> Rule | None:
    """Return the pointwise rule for an operator that torch tags as pointwise, or that is listed above."""
    if not isinstance(func, torch._ops.OpOverload):
        return None
    if func not in POINTWISE and torch.Tag.pointwise not in func.tags:
        return None
    returns = func._schema.returns
    writes = [argument for argument in func._schema.arguments if argument.alias_info and argument.alias_info.is_write]
    if len(returns) != 1 or any(argument.kwarg_only for argument in writes) or len(writes) > 1:
        return None
    return compute_in_place if writes else compute_pointwise


GENERIC_RULES.append(find_pointwise)


def compute_pointwise(call: Call) -> Any:
    args, kwargs = call.args, call.kwargs
    first = args[0] if args else None
    if isinstance(first, SplitTensor):
        layout = first.layout_on_ranks
        if all(
            not isinstance(other, Tensor) or (isinstance(other, SplitTensor) and other.layout_on_ranks is layout)
            for other in args[1:]
        ) and not any(isinstance(other, Tensor) for other in kwargs.values()):
            if first.margin is not None:
                wide = find_wide_parts(args, layout, call.group)
                if wide is not None:
                    return wide.wrap(call.func(*_substitute(args, wide, call.group), **kwargs))
            parts = [get_local(value) if isinstance(value, SplitTensor) else value for value in args]
            return SplitTensor(call.func(*parts, **kwargs), layout, call.group)
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
    layout_or_none = choose_layout(tensors, call.group)
    if layout_or_none is None:
        return NO_RULE
    return _compute(call, layout_or_none)


def compute_in_place(call: Call) -> Any:
    target = call.args[0]
    if not isinstance(target, SplitTensor):
        return NO_RULE  # a plain tensor is written with whole values
    if target.margin is not None and target.margin.is_shared:
        wide = find_wide_parts((*call.args, *call.kwargs.values()), target.layout_on_ranks, call.group)
        if wide is not None:
            *parts, kwargs = _substitute((*call.args, call.kwargs), wide, call.group)
            call.func(*parts, **kwargs)
            wide.update(target, parts[0])
            return target
    parts = [
        get_local(value) if value is target else localise(value, target.layout_on_ranks, call.group)
        for value in call.args
    ]
    kwargs = {name: localise(value, target.layout_on_ranks, call.group) for name, value in call.kwargs.items()}
    call.func(*parts, **kwargs)
    write_back(target)
    return target


def _substitute(values: Sequence[Any], wide: WideParts, group: SplitGroup) -> list[Any]:
    """Return operands with their margins; a dict of operands is replaced entry by entry."""
    parts = iter(wide.parts)

    def substitute(value: Any) -> Any:
        is_wide = isinstance(value, SplitTensor) and not value.layout_on_ranks.is_whole
        return next(parts) if is_wide else localise(value, wide.margin, group)

    return [
        {name: substitute(entry) for name, entry in value.items()} if isinstance(value, dict) else substitute(value)
        for value in values
    ]


def _compute(call: Call, layout: TensorLayout) -> Any:
    wide = find_wide_parts((*call.args, *call.kwargs.values()), layout, call.group)
    if wide is not None:
        *parts, named = _substitute((*call.args, call.kwargs), wide, call.group)
        return wide.wrap(call.func(*parts, **named))
    args = [localise(value, layout, call.group) for value in call.args]
    kwargs = {name: localise(value, layout, call.group) for name, value in call.kwargs.items()}
    return SplitTensor(call.func(*args, **kwargs), layout, call.group)


def choose_layout(tensors: Sequence[Tensor], group: SplitGroup) -> TensorLayout | None:
    """Return the layout of the result of a pointwise operator; None if the operands cannot be combined on tiles."""
    shape = torch.broadcast_shapes(*(tensor.shape for tensor in tensors))  # type: ignore[no-untyped-call]
    layouts = [t.layout_on_ranks for t in tensors if isinstance(t, SplitTensor) and not t.layout_on_ranks.is_whole]
    if not layouts:
        return make_whole(shape, group.ranks)
    full = [layout for layout in layouts if layout.shape == tuple(shape)]
    exclusive = [layout for layout in full if layout.is_exclusive]
    if exclusive or full:
        candidates = exclusive or full
        tiles = group.get_tiles(shape, len(shape) - 2) if len(shape) > 2 else None
        return next((layout for layout in candidates if layout is tiles), candidates[0])
    widest = max(layouts, key=lambda layout: len(layout.split_dims))
    return expand(widest, shape)


def localise(value: Any, layout: TensorLayout, group: SplitGroup) -> Any:
    """Return this rank's part of an operand, laid out like the result; values that are not tensors are unchanged."""
    if not isinstance(value, Tensor):
        return value
    if isinstance(value, SplitTensor) and value.layout_on_ranks is layout:
        return get_local(value)
    if value.dim() == 0:
        return get_local(value) if isinstance(value, SplitTensor) else value
    return redistribute(value, project(layout, tuple(value.shape), group), group)


def project(layout: TensorLayout, shape: tuple[int, ...], group: SplitGroup) -> TensorLayout:
    """Return the layout of an operand of this shape that is broadcast to a result with a layout."""
    if shape == layout.shape:
        return layout
    key = "project", layout, shape
    if key not in group.plans:
        skip = len(layout.shape) - len(shape)
        factors, at = [], []
        for dim, size in enumerate(shape, start=skip):
            same = size == layout.shape[dim]
            factors.append(layout.factors[dim] if same else ())
            at += list(layout.positions[dim]) if same else []
        group.plans[key] = make_layout(factors, [Box(tuple(box.dims[i] for i in at)) for box in layout.boxes])
    projected: TensorLayout = group.plans[key]
    return projected


@rule(aten._log_softmax_backward_data.default, aten._softmax_backward_data.default)
def compute_softmax_backward(call: Call) -> Any:
    return _compute_along_dim(call, call.args[2])


@rule(aten._softmax.default, aten._log_softmax.default, aten._safe_softmax.default)
@rule(aten.cumsum.default, aten.cumprod.default, aten.glu.default)
def compute_along_one_dim(call: Call) -> Any:
    return _compute_along_dim(call, call.get(1, "dim", -1))


def _compute_along_dim(call: Call, dim: int) -> Any:
    """Compute an operator that needs one dim whole and leaves the shape as it is (except for that dim)."""
    from tessera.geometry import Interval
    from tessera.spatial.tensor.layout import replace_dim
    from tessera.spatial.tensor.split_tensor import move_split

    first = call.args[0]
    if first.dim() == 0:
        return NO_RULE
    tensor = next(value for value in call.args if isinstance(value, SplitTensor))
    if tensor.shape != first.shape:
        return NO_RULE
    local, layout = move_split(tensor, [dim], call.group)
    parts = [local if value is tensor else localise(value, layout, call.group) for value in call.args]
    result = call.func(*parts, **call.kwargs)
    size = result.shape[dim]
    if size != first.shape[dim]:
        layout = replace_dim(layout, dim % first.dim(), size, [Interval(0, size)] * layout.ranks)
    return call.wrap(result, layout)
