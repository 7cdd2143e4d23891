"""Matrix products and attention. Rows of the first factor stay split; the second factor is gathered where needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tessera.geometry import Box, Interval
from tessera.spatial.tensor.layout import TensorLayout, make_layout, make_whole
from tessera.spatial.tensor.rules.pointwise import localise
from tessera.spatial.tensor.split_tensor import (
    NO_RULE,
    Call,
    SplitGroup,
    SplitTensor,
    gather,
    get_local,
    redistribute,
    rule,
)

aten = torch.ops.aten


def _take_dims(layouts: Sequence[tuple[TensorLayout | None, int, int]], ranks: int) -> TensorLayout:
    """Return the layout whose dims are taken from (layout, dim, size); a layout of None means whole."""
    factors: list[tuple[int, ...]] = []
    columns: list[list[Interval]] = []
    for layout, dim, size in layouts:
        if layout is None:
            factors.append((size,))
            columns.append([Interval(0, size)] * ranks)
            continue
        factors.append(layout.factors[dim])
        columns += [[box.dims[at] for box in layout.boxes] for at in layout.positions[dim]]
    return make_layout(factors, [Box(tuple(column[rank] for column in columns)) for rank in range(ranks)])


def multiply(first: Tensor, second: Tensor, group: SplitGroup) -> SplitTensor:
    """Return the product of two matrices or of two batches of matrices."""
    batch = first.dim() - 2
    left = first.layout_on_ranks if isinstance(first, SplitTensor) else None
    right = second.layout_on_ranks if isinstance(second, SplitTensor) else None
    left = None if left is None or left.is_whole or not left.is_exclusive else left
    right = None if right is None or right.is_whole or not right.is_exclusive else right
    rows, inner, columns = first.shape[-2], first.shape[-1], second.shape[-1]
    lead, count = tuple(first.shape[:batch]), group.ranks
    row_dim, inner_left, inner_right, column_dim = batch, batch + 1, batch, batch + 1
    multiply_local = torch.bmm if batch else torch.mm
    if left is not None and inner_left not in left.split_dims:  # rows or batches of the first are split
        batches = [(left, dim, size) for dim, size in enumerate(lead)]
        target = _take_dims([*batches, (None, 0, inner), (None, 0, columns)], count)
        result = _take_dims([*batches, (left, row_dim, rows), (None, 0, columns)], count)
        assert isinstance(first, SplitTensor)
        return SplitTensor(multiply_local(get_local(first), redistribute(second, target, group)), result, group)
    if right is not None and inner_right not in right.split_dims and left is None:
        batches = [(right, dim, size) for dim, size in enumerate(lead)]
        target = _take_dims([*batches, (None, 0, rows), (None, 0, inner)], count)
        result = _take_dims([*batches, (None, 0, rows), (right, column_dim, columns)], count)
        assert isinstance(second, SplitTensor)
        return SplitTensor(multiply_local(redistribute(first, target, group), get_local(second)), result, group)
    # The inner dim is split: every rank multiplies its part, and the products are added up.
    known, dim = (left, inner_left) if left is not None and left.split_dims == (inner_left,) else (right, inner_right)
    if known is not None and known.split_dims == (dim,):
        whole = [(None, 0, size) for size in lead]
        first_part = redistribute(first, _take_dims([*whole, (None, 0, rows), (known, dim, inner)], count), group)
        second_part = redistribute(second, _take_dims([*whole, (known, dim, inner), (None, 0, columns)], count), group)
        total = group.sum(multiply_local(first_part, second_part))
        return SplitTensor(total, make_whole(total.shape, count), group)
    group.log.mark("whole")
    product = multiply_local(gather(first), gather(second))
    return SplitTensor(product, make_whole(product.shape, count), group)


@rule(aten.mm.default, aten.bmm.default)
def multiply_matrices(call: Call) -> Any:
    return multiply(call.args[0], call.args[1], call.group)


@rule(aten.addmm.default, aten.baddbmm.default)
def add_product(call: Call) -> Any:
    bias, first, second = call.args
    beta, alpha = call.kwargs.get("beta", 1), call.kwargs.get("alpha", 1)
    product = multiply(first, second, call.group)
    part = get_local(product)
    if alpha != 1:
        part = part * alpha
    if beta != 0:
        own = localise(bias, product.layout_on_ranks, call.group)
        part = part + (own if beta == 1 else own * beta)
    return call.wrap(part, product.layout_on_ranks)


@rule(aten.mv.default)
def multiply_vector(call: Call) -> Any:
    matrix, vector = call.args
    column = vector.unsqueeze(1) if not isinstance(vector, SplitTensor) else gather(vector).unsqueeze(1)
    product = multiply(matrix, column, call.group)
    layout = product.layout_on_ranks
    target = make_layout(layout.factors[:1], [Box(box.dims[: len(layout.factors[0])]) for box in layout.boxes])
    return call.wrap(get_local(product).squeeze(1), target)


def _plan_attention(query: Tensor, group: SplitGroup) -> TensorLayout | None:
    """Return the layout of the queries if heads or queries are split and the channels of a head are whole."""
    if not isinstance(query, SplitTensor):
        return None
    layout = query.layout_on_ranks
    if layout.is_whole or not layout.is_exclusive or 3 in layout.split_dims:
        return None
    return layout


def _take_keys(layout: TensorLayout, keys: Tensor, group: SplitGroup) -> TensorLayout:
    """Return the layout of keys or values: heads as those of the queries, all keys on every rank."""
    batch, heads, count, channels = keys.shape
    return _take_dims([(layout, 0, batch), (layout, 1, heads), (None, 0, count), (None, 0, channels)], group.ranks)


@rule(aten._scaled_dot_product_flash_attention_for_cpu.default)
def attend(call: Call) -> Any:
    """Attention: queries stay split; keys and values are gathered."""
    query, keys, values = call.args[:3]
    causal, mask = call.get(4, "is_causal", False), call.kwargs.get("attn_mask")
    group = call.group
    layout = _plan_attention(query, group)
    if layout is None or causal or keys.shape[:2] != query.shape[:2] or layout.has_empty_part:
        return NO_RULE
    parts = [redistribute(value, _take_keys(layout, value, group), group) for value in (keys, values)]
    own_mask = None if mask is None else _slice_mask(mask, layout, group)
    result, sums = call.func(
        get_local(query), *parts, *call.args[3:5], attn_mask=own_mask, scale=call.kwargs.get("scale")
    )
    channels = values.shape[3]
    output = _take_dims([(layout, dim, query.shape[dim]) for dim in range(3)] + [(None, 0, channels)], group.ranks)
    order = (0, 1, 2) if sums.shape[1] == result.shape[1] else (0, 2, 1)
    statistics = _take_dims([(layout, dim, query.shape[dim]) for dim in order], group.ranks)
    return call.wrap(result, output), call.wrap(sums, statistics)


def _slice_mask(mask: Tensor, layout: TensorLayout, group: SplitGroup) -> Tensor:
    dims: list[tuple[TensorLayout | None, int, int]] = []
    lead = 4 - mask.dim()
    for dim in range(mask.dim()):
        size = mask.shape[dim]
        at = dim + lead
        split = at < 3 and size == layout.shape[at]
        dims.append((layout, at, size) if split else (None, 0, size))
    return redistribute(mask, _take_dims(dims, group.ranks), group)


@rule(aten._scaled_dot_product_flash_attention_for_cpu_backward.default)
def attend_backward(call: Call) -> Any:
    grad, query, keys, values, output, sums, dropout, causal = call.args[:8]
    mask, scale = call.kwargs.get("attn_mask"), call.kwargs.get("scale")
    group = call.group
    layout = _plan_attention(query, group)
    if layout is None or causal or keys.shape[:2] != query.shape[:2] or layout.has_empty_part:
        return NO_RULE
    parts = [redistribute(value, _take_keys(layout, value, group), group) for value in (keys, values)]
    results = _take_dims(
        [(layout, dim, query.shape[dim]) for dim in range(3)] + [(None, 0, values.shape[3])], group.ranks
    )
    own = [redistribute(value, results, group) for value in (grad, output)]
    own_mask = None if mask is None else _slice_mask(mask, layout, group)
    order = (0, 1, 2) if sums.shape[1] == query.shape[1] else (0, 2, 1)
    statistics = _take_dims([(layout, dim, query.shape[dim]) for dim in order], group.ranks)
    grads = call.func(
        own[0],
        get_local(query),
        *parts,
        own[1],
        redistribute(sums, statistics, group),
        dropout,
        causal,
        attn_mask=own_mask,
        scale=scale,
    )
    return call.wrap(grads[0], layout), *(
        _add_up_keys(call, part, value, layout) for part, value in zip(grads[1:], (keys, values), strict=True)
    )


def _add_up_keys(call: Call, part: Tensor, keys: Tensor, layout: TensorLayout) -> SplitTensor:
    """Add up the gradients of keys that the queries of all ranks have contributed."""
    total = part.new_zeros(keys.shape)
    target = _take_keys(layout, keys, call.group)
    box = target.boxes[call.group.rank]
    total.view(target.sizes)[box.slices] = part.reshape(box.shape)
    return call.wrap(call.group.sum(total), make_whole(total.shape, call.group.ranks))
