"""Matrix products. Rows of the first factor stay split; the second factor is gathered where needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tessera.geometry import Box, Interval
from tessera.spatial.tensor.gradient_buckets import sum_whole
from tessera.spatial.tensor.layout import TensorLayout, make_layout, make_whole
from tessera.spatial.tensor.rules.pointwise import localise
from tessera.spatial.tensor.split_tensor import (
    Call,
    SplitGroup,
    SplitTensor,
    gather,
    get_local,
    redistribute,
    rule,
)

aten = torch.ops.aten


def take_dims(layouts: Sequence[tuple[TensorLayout | None, int, int]], ranks: int) -> TensorLayout:
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
        target = take_dims([*batches, (None, 0, inner), (None, 0, columns)], count)
        result = take_dims([*batches, (left, row_dim, rows), (None, 0, columns)], count)
        assert isinstance(first, SplitTensor)
        return SplitTensor(multiply_local(get_local(first), redistribute(second, target, group)), result, group)
    if right is not None and inner_right not in right.split_dims and left is None:
        batches = [(right, dim, size) for dim, size in enumerate(lead)]
        target = take_dims([*batches, (None, 0, rows), (None, 0, inner)], count)
        result = take_dims([*batches, (None, 0, rows), (right, column_dim, columns)], count)
        assert isinstance(second, SplitTensor)
        return SplitTensor(multiply_local(redistribute(first, target, group), get_local(second)), result, group)
    # The inner dim is split: every rank multiplies its part, and the products are added up.
    known, dim = (left, inner_left) if left is not None and left.split_dims == (inner_left,) else (right, inner_right)
    if known is not None and known.split_dims == (dim,):
        whole = [(None, 0, size) for size in lead]
        first_part = redistribute(first, take_dims([*whole, (None, 0, rows), (known, dim, inner)], count), group)
        second_part = redistribute(second, take_dims([*whole, (known, dim, inner), (None, 0, columns)], count), group)
        return sum_whole(group, multiply_local(first_part, second_part), first.dtype)
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
