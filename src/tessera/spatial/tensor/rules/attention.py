"""Attention over pixels: queries stay split; keys and values are gathered, or passed around the ring.

In a ring every rank computes the attention of its queries to the keys of one rank at a time, and passes them on. The
results are combined exactly, by the logarithms of their sums of exponentials; a rank never has all keys
and values. Backward, the gradients of keys and values are passed around with them, back to their rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import Any

import torch
from torch import Tensor

from tessera.spatial.tensor.layout import TensorLayout, make_whole
from tessera.spatial.tensor.rules.products import take_dims
from tessera.spatial.tensor.split_tensor import (
    NO_RULE,
    Call,
    SplitGroup,
    SplitTensor,
    get_local,
    redistribute,
    rule,
)

aten = torch.ops.aten
TOKENS = 2  # the dims of queries, keys and values are samples, heads, tokens, channels


def _plan_attention(query: Tensor, keys: Tensor) -> TensorLayout | None:
    """Return the layout of the queries if heads or queries are split and the channels of a head are whole."""
    if not isinstance(query, SplitTensor) or keys.shape[:2] != query.shape[:2]:
        return None
    layout = query.layout_on_ranks
    if layout.is_whole or not layout.is_exclusive or 3 in layout.split_dims or layout.has_empty_part:
        return None
    return layout


def _uses_ring(layout: TensorLayout, keys: Tensor, values: Tensor, group: SplitGroup) -> bool:
    """Return whether keys and values are split by tokens and too large to be gathered."""
    if not isinstance(keys, SplitTensor) or keys.nbytes + values.nbytes <= group.max_gather_bytes:
        return False
    known = keys.layout_on_ranks
    return known.split_dims == layout.split_dims == (TOKENS,) and known.is_exclusive and not known.has_empty_part


def _take_channels(layout: TensorLayout, tensor: Tensor, ranks: int) -> TensorLayout:
    """Return a layout with the samples, heads and tokens of `layout`, and all channels of `tensor`."""
    dims: list[Any] = [(layout, dim, layout.shape[dim]) for dim in range(3)]
    return take_dims([*dims, (None, 0, tensor.shape[3])], ranks)


def _take_keys(layout: TensorLayout, keys: Tensor, group: SplitGroup) -> TensorLayout:
    """Return the layout of keys or values: heads split like the heads of the queries, all keys on every rank."""
    batch, heads, count, channels = keys.shape
    return take_dims([(layout, 0, batch), (layout, 1, heads), (None, 0, count), (None, 0, channels)], group.ranks)


def _list_tokens(layout: TensorLayout, rank: int, device: torch.device) -> Tensor:
    """Return the indices of the tokens that a rank has."""
    positions, box = layout.positions[TOKENS], layout.boxes[rank]
    tokens = torch.arange(layout.shape[TOKENS], device=device)
    return tokens.view(layout.factors[TOKENS])[tuple(box.slices[at] for at in positions)].reshape(-1)


class _Masks:
    """The mask of this rank's queries, for all keys or for the keys of one rank."""

    def __init__(
        self, mask: Tensor | None, is_causal: bool, query: Tensor, layout: TensorLayout, group: SplitGroup
    ) -> None:
        self._mask = None if mask is None else _slice_mask(mask, layout, group)
        self._rows = _list_tokens(layout, group.rank, query.device) if is_causal else None
        self._dtype, self._device = query.dtype, query.device

    def get(self, keys: Tensor) -> Tensor | None:
        """Return the mask for keys with these indices."""
        if self._rows is not None:
            allowed = keys <= self._rows.unsqueeze(1)
            return torch.zeros(allowed.shape, dtype=self._dtype, device=self._device).masked_fill_(~allowed, -inf)
        if self._mask is None or self._mask.shape[-1] == 1:
            return self._mask
        return self._mask.index_select(-1, keys)

    def get_all(self, count: int) -> Tensor | None:
        return self._mask if self._rows is None else self.get(torch.arange(count, device=self._device))


def _slice_mask(mask: Tensor, layout: TensorLayout, group: SplitGroup) -> Tensor:
    dims: list[tuple[TensorLayout | None, int, int]] = []
    lead = 4 - mask.dim()
    for dim in range(mask.dim()):
        size = mask.shape[dim]
        at = dim + lead
        split = at < 3 and size == layout.shape[at]
        dims.append((layout, at, size) if split else (None, 0, size))
    return redistribute(mask, take_dims(dims, group.ranks), group)


@rule(aten._scaled_dot_product_flash_attention_for_cpu.default)
def attend(call: Call) -> Any:
    query, keys, values = call.args[:3]
    causal, mask, scale = call.get(4, "is_causal", False), call.kwargs.get("attn_mask"), call.kwargs.get("scale")
    group = call.group
    layout = _plan_attention(query, keys)
    if layout is None or (causal and mask is not None):
        return NO_RULE
    masks = _Masks(mask, causal, query, layout, group)
    local = get_local(query)
    if _uses_ring(layout, keys, values, group):
        result, sums = _attend_in_ring(local, keys, values, masks, scale, group)
    else:
        parts = [redistribute(value, _take_keys(layout, value, group), group) for value in (keys, values)]
        result, sums = call.func(local, *parts, 0.0, False, attn_mask=masks.get_all(keys.shape[2]), scale=scale)
    statistics = take_dims([(layout, dim, query.shape[dim]) for dim in range(3)], group.ranks)
    return call.wrap(result, _take_channels(layout, values, group.ranks)), call.wrap(sums, statistics)


def _attend_in_ring(
    query: Tensor, keys: SplitTensor, values: Tensor, masks: _Masks, scale: float | None, group: SplitGroup
) -> tuple[Tensor, Tensor]:
    """Return the attention of this rank's queries to all keys, and the logarithms of the sums of exponentials."""
    result: Tensor | None = None
    total: Tensor | None = None
    layout = keys.layout_on_ranks
    own = [get_local(keys), redistribute(values, _take_channels(layout, values, group.ranks), group)]
    for owner, (block_keys, block_values) in _pass_round(own, layout, group):
        mask = masks.get(_list_tokens(layout, owner, query.device))
        part, sums = aten._scaled_dot_product_flash_attention_for_cpu.default(
            query, block_keys, block_values, 0.0, False, attn_mask=mask, scale=scale
        )
        if mask is not None:  # torch returns 0 for queries that may not attend to any key of the block
            sums = sums.masked_fill((mask == -inf).all(-1), -inf)
        if result is None or total is None:
            result, total = part, sums
            continue
        joint = torch.logaddexp(total, sums)
        before, now = ((old - joint).exp().nan_to_num_(0).unsqueeze(-1) for old in (total, sums))
        result = result.mul_(before).add_(part.mul_(now))
        total = joint
    assert result is not None
    assert total is not None
    return result.to(query.dtype), total.masked_fill(total == -inf, 0)


def _pass_round(own: Sequence[Tensor], layout: TensorLayout, group: SplitGroup) -> Iterator[tuple[int, list[Tensor]]]:
    """Yield the number and the tensors of each rank, beginning with this rank; `layout` is the layout of the tokens.

    Values that are added to the tensors are passed on with them.
    """
    tensors = list(own)
    for turn in range(group.ranks):
        owner = (group.rank + turn) % group.ranks
        yield owner, tensors
        if turn + 1 < group.ranks:
            tensors = _shift(tensors, layout, (owner + 1) % group.ranks, group)


def _shift(tensors: list[Tensor], layout: TensorLayout, owner: int, group: SplitGroup) -> list[Tensor]:
    """Send tensors to the previous rank, and return the tensors of the next rank, which are parts of rank `owner`."""
    counts = [layout.get_local_shape(rank)[TOKENS] for rank in range(group.ranks)]
    sizes = [tensor.numel() // tensor.shape[TOKENS] for tensor in tensors]  # per token
    ring = group.get_ring(max(sizes) * max(counts), tensors[0])
    group.log.count_bytes(sum(sizes) * max(counts) * tensors[0].itemsize)
    for at, tensor in enumerate(tensors):  # in place: the tensor that was sent is freed before the next one is received
        tensors[at] = ring.shift(tensor, (*tensor.shape[:TOKENS], counts[owner], *tensor.shape[TOKENS + 1 :]))
    return tensors


@rule(aten._scaled_dot_product_flash_attention_for_cpu_backward.default)
def attend_backward(call: Call) -> Any:
    grad, query, keys, values, output, sums, _, causal = call.args[:8]
    mask, scale = call.kwargs.get("attn_mask"), call.kwargs.get("scale")
    group = call.group
    layout = _plan_attention(query, keys)
    if layout is None or (causal and mask is not None):
        return NO_RULE
    results = _take_channels(layout, values, group.ranks)
    own_grad, own_output = (redistribute(value, results, group) for value in (grad, output))
    statistics = take_dims([(layout, dim, query.shape[dim]) for dim in range(3)], group.ranks)
    own_sums, masks = redistribute(sums, statistics, group), _Masks(mask, causal, query, layout, group)
    local = get_local(query)

    def compute(parts: Sequence[Tensor], block_mask: Tensor | None) -> Any:
        return call.func(own_grad, local, *parts, own_output, own_sums, 0.0, False, attn_mask=block_mask, scale=scale)

    if not _uses_ring(layout, keys, values, group):
        parts = [redistribute(value, _take_keys(layout, value, group), group) for value in (keys, values)]
        grads = compute(parts, masks.get_all(keys.shape[2]))
        return call.wrap(grads[0], layout), *(
            _add_up_keys(call, part, value, layout) for part, value in zip(grads[1:], (keys, values), strict=True)
        )
    known = keys.layout_on_ranks
    layouts = known, _take_channels(known, values, group.ranks)
    own = [redistribute(value, place, group) for value, place in zip((keys, values), layouts, strict=True)]
    grad_query: Tensor | None = None
    tensors: list[Tensor] = []
    for owner, tensors in _pass_round([*own, *(torch.zeros_like(part) for part in own)], known, group):
        grads = compute(tensors[:2], masks.get(_list_tokens(known, owner, query.device)))
        grad_query = grads[0] if grad_query is None else grad_query.add_(grads[0])
        for total, part in zip(tensors[2:], grads[1:], strict=True):
            total.add_(part)
    home = _shift(tensors[2:], known, group.rank, group)
    assert grad_query is not None
    return call.wrap(grad_query, layout), *(call.wrap(part, place) for part, place in zip(home, layouts, strict=True))


def _add_up_keys(call: Call, part: Tensor, keys: Tensor, layout: TensorLayout) -> SplitTensor:
    """All-reduce the gradient of keys, to which the queries of every rank contribute a part."""
    total = part.new_zeros(keys.shape)
    target = _take_keys(layout, keys, call.group)
    box = target.boxes[call.group.rank]
    total.view(target.sizes)[box.slices] = part.reshape(box.shape)
    return call.wrap(call.group.sum(total), make_whole(total.shape, call.group.ranks))
