"""Margins: pixels around a rank's part that the rank recomputes, so that the next window needs no exchange.

A tensor keeps its exclusive layout, in which every pixel has one owner, and operators that count pixels (sums,
statistics, weight gradients, gathering) read this part. A tensor may have a margin in addition. One exchange of a halo
for three 3x3 windows, along one dim of an image of 12 pixels on two ranks:

    rank 0 owns 0:6        received     x   0 1 2 3 4 5|6 7 8
    convolution            computed     y   0 1 2 3 4 5|6 7        margin of 2
    convolution            computed     z   0 1 2 3 4 5|6          margin of 1
    convolution            computed     w   0 1 2 3 4 5|

Pointwise operators compute the margin, too. All other operators ignore it, and their results have no margin.
Boxes end at the edges of the image: every window pads with zeros there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tessera.geometry import Box, Interval
from tessera.spatial.tensor.layout import TensorLayout, make_plain_layout, replace_dim
from tessera.spatial.tensor.split_tensor import Margin, SplitGroup, SplitTensor, WideExchange, get_margin
from tessera.spatial.tensor.transfer import index_part


def grow_layout(layout: TensorLayout, before: Sequence[int], after: Sequence[int]) -> TensorLayout:
    """Return a plain layout with boxes that are larger in the last dims, but end at the edges of the tensor."""
    lead = len(layout.shape) - len(before)
    boxes = []
    for rank in range(layout.ranks):
        own = layout.get_dim_box(rank)
        dims = [
            Interval(max(0, part.start - first), min(size, part.stop + last))
            for part, size, first, last in zip(own.dims[lead:], layout.shape[lead:], before, after, strict=True)
        ]
        boxes.append(Box((*own.dims[:lead], *dims)) if own else own)
    return make_plain_layout(layout.shape, boxes)


def contains(outer: TensorLayout, inner: TensorLayout) -> bool:
    """Return whether every rank's box in the first layout contains its box in the second layout."""
    return all(not inner.get_dim_box(rank) or inner.get_dim_box(rank) in outer.get_dim_box(rank)
               for rank in range(inner.ranks))  # fmt: skip


def wrap_wide(
    wide: Tensor, layout: TensorLayout, margin: TensorLayout, group: SplitGroup, exchange: WideExchange, uses: int
) -> SplitTensor:
    """Return a split tensor of which this rank has computed the box of the layout `margin`."""
    tensor = SplitTensor(wide, layout, group)  # with the strides of the wide part, which has no gaps
    if margin is not layout:
        tensor.local = _crop(wide, margin, layout, group)
        tensor.margin = Margin(wide, margin, 0, True, exchange, uses)
        tensor.has_gaps = True
    return tensor


def _crop(wide: Tensor, outer: TensorLayout, inner: TensorLayout, group: SplitGroup) -> Tensor:
    if outer is inner:
        return wide
    return wide[index_part(outer.get_dim_box(group.rank), inner.get_dim_box(group.rank))]


def _get_age(margin: Margin) -> tuple[int, int]:
    """Return a key that orders margins: gradients have later exchanges than the activations they are multiplied by."""
    return margin.exchange.number, margin.uses


class WideParts:
    """The parts of tensors of one layout, with their common margin."""

    def __init__(
        self, margins: Sequence[Margin], layout: TensorLayout, margin: TensorLayout, group: SplitGroup
    ) -> None:
        self.layout, self.margin, self._group = layout, margin, group
        self.parts = [_crop(each.wide, each.layout, margin, group) for each in margins]
        self.latest = max(margins, key=_get_age)

    def wrap(self, wide: Tensor) -> SplitTensor:
        """Return a result that was computed from the parts pixel by pixel."""
        return wrap_wide(wide, self.layout, self.margin, self._group, self.latest.exchange, self.latest.uses)

    def update(self, target: SplitTensor, written: Tensor) -> None:
        """Note that a part was written in place, by the current operator."""
        target.margin = replace(
            self.latest, wide=written, layout=self.margin, version=target.writes[0] + 1, is_shared=True
        )


def find_wide_parts(tensors: Iterable[Any], layout: TensorLayout, group: SplitGroup) -> WideParts | None:
    """Return the parts of the tensors of this layout with their common margin; None if there is none.

    Plain and whole tensors have every pixel. Other layouts have no margin in common.
    """
    if group.halo_depth == 1:
        return None
    margins = []
    for tensor in tensors:
        if not isinstance(tensor, SplitTensor) or tensor.layout_on_ranks.is_whole:
            continue
        margin = get_margin(tensor)
        if margin is None or tensor.layout_on_ranks is not layout:
            return None
        margins.append(margin)
    if not margins:
        return None
    common = _intersect([margin.layout for margin in margins], group)
    return None if common is layout else WideParts(margins, layout, common, group)


def join_wide_parts(
    operands: Sequence[WideParts], dim: int, layout: TensorLayout, group: SplitGroup
) -> SplitTensor | None:
    """Return the concatenation of tensors along a dim that is not split, with their common margin."""
    whole = [Interval(0, layout.shape[dim])] * group.ranks
    margin = _intersect([replace_dim(each.margin, dim, layout.shape[dim], whole) for each in operands], group)
    if margin is layout:
        return None
    parts = []
    for each in operands:
        size = each.layout.shape[dim]
        own = replace_dim(margin, dim, size, [Interval(0, size)] * group.ranks)
        parts.append(_crop(each.parts[0], each.margin, own, group))
    latest = max((each.latest for each in operands), key=_get_age)
    return wrap_wide(torch.cat(parts, dim), layout, margin, group, latest.exchange, latest.uses)


def _intersect(layouts: Sequence[TensorLayout], group: SplitGroup) -> TensorLayout:
    result = layouts[0]
    for other in layouts[1:]:
        if other is result:
            continue
        key = "intersect", result, other
        if key not in group.plans:
            boxes = [result.get_dim_box(rank) & other.get_dim_box(rank) for rank in range(group.ranks)]
            group.plans[key] = make_plain_layout(result.shape, boxes)
        result = group.plans[key]
    return result
