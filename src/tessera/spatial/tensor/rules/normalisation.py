"""Normalisations with the statistics of the whole tensor: every rank adds up its part, and the sums are combined."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tessera.geometry import Box
from tessera.spatial.tensor.gradient_buckets import sum_weights
from tessera.spatial.tensor.layout import TensorLayout, make_layout
from tessera.spatial.tensor.margins import find_wide_parts
from tessera.spatial.tensor.split_tensor import (
    NO_RULE,
    Call,
    SplitGroup,
    SplitTensor,
    gather,
    get_local,
    move_split,
    redistribute,
    rule,
)
from tessera.spatial.tensor.statistics import combine_statistics, compute_own_statistics, get_sum_dtype, sum_pair

aten = torch.ops.aten


def _choose_layout(tensor: Tensor, group: SplitGroup) -> TensorLayout | None:
    """Return an exclusive layout of a tensor with all channels (dim 1) on every rank; None if it is whole."""
    if not isinstance(tensor, SplitTensor):
        return None
    layout = tensor.layout_on_ranks
    if layout.is_whole:
        return None
    if layout.is_exclusive and 1 not in layout.split_dims:
        return layout
    return group.get_tiles(layout.shape, len(layout.shape) - 2) if len(layout.shape) > 2 else None


def _view_channels(values: Tensor, tile: Tensor) -> Tensor:
    return values.to(tile.dtype).view(1, -1, *(1,) * (tile.dim() - 2))


@rule(aten.native_batch_norm.default)
def normalise_batch(call: Call) -> Any:
    tensor, weight, bias, mean, variance, training, momentum, eps = call.args
    weight, bias = gather(weight), gather(bias)
    group = call.group
    if not training:
        wide = find_wide_parts([tensor], tensor.layout_on_ranks, group)
        tile = get_local(tensor) if wide is None else wide.parts[0]
        part, *saved = call.func(tile, weight, bias, gather(mean), gather(variance), False, momentum, eps)
        if wide is not None:
            return wide.wrap(part), *saved
        if 1 in tensor.layout_on_ranks.split_dims:
            return NO_RULE
        return call.wrap(part, tensor.layout_on_ranks), *saved
    layout = _choose_layout(tensor, group)
    if layout is None:
        return NO_RULE
    tile = redistribute(tensor, layout, group)
    total = prod(layout.shape) // layout.shape[1]
    batch_mean, batch_variance = _compute_channel_statistics(tile, layout.shape[1], total, group)
    if mean is not None:
        unbiased = batch_variance * (total / max(1, total - 1))
        for running, current in ((mean, batch_mean), (variance, unbiased)):
            running.lerp_(current.to(running.dtype), momentum)
    precision = get_sum_dtype(tile)
    batch_mean, batch_variance = batch_mean.to(precision), batch_variance.to(precision)
    inverse = (batch_variance.double() + eps).rsqrt().to(precision)
    wide = find_wide_parts([tensor], layout, group)
    pixels = tile if wide is None else wide.parts[0]
    if 0 in pixels.shape:
        part = torch.empty_like(pixels)
    else:
        scale, shift = (None if value is None else value.to(precision) for value in (weight, bias))
        part = F.batch_norm(pixels, batch_mean, batch_variance, scale, shift, training=False, eps=eps)
    return call.wrap(part, layout) if wide is None else wide.wrap(part), batch_mean, inverse


def _compute_channel_statistics(tile: Tensor, channels: int, total: int, group: SplitGroup) -> tuple[Tensor, Tensor]:
    """Return mean and variance of every channel over all ranks, in double precision."""
    precision = get_sum_dtype(tile)
    if not tile.numel():
        mean = squares = torch.zeros(channels, dtype=precision, device=tile.device)
        count = 0
    else:
        count = tile.numel() // channels
        mean, squares = compute_own_statistics(tile, [0, *range(2, tile.dim())])
    group.log.count_bytes(32 * channels)
    return combine_statistics(mean, squares, count, total, group.transport)


@rule(aten.native_batch_norm_backward.default)
def normalise_batch_backward(call: Call) -> Any:
    grad, tensor, weight, mean, variance, saved_mean, saved_inverse, training, eps, mask = call.args
    group = call.group
    layout = _choose_layout(tensor, group)
    if layout is None:
        return NO_RULE
    tile, grads = redistribute(tensor, layout, group), redistribute(grad, layout, group)
    weight = gather(weight)
    grads = grads.contiguous(memory_format=_get_memory_format(tile))
    if not training:
        statistics = (gather(mean), gather(variance), None, None)
        margins = find_wide_parts([grad], layout, group)
        if 0 in tile.shape:
            zeros = torch.zeros(tile.shape[1], dtype=tile.dtype, device=tile.device)
            results = (torch.empty_like(tile), zeros, zeros.clone())
        else:
            results = call.func(grads, tile, weight, *statistics, False, eps, (mask[0] and margins is None, *mask[1:]))
        part = None
        if mask[0] and margins is not None:
            inverse = (statistics[1].to(get_sum_dtype(tile)) + eps).rsqrt()
            part = margins.wrap(
                margins.parts[0] * _view_channels(inverse if weight is None else inverse * weight, tile)
            )
        elif mask[0]:
            part = call.wrap(results[0], layout)
        return part, *sum_weights(group, results[1] if mask[1] else None, results[2] if mask[2] else None)
    saved_mean, saved_inverse = gather(saved_mean), gather(saved_inverse)
    precision = saved_mean.dtype
    scale = torch.ones_like(saved_mean) if weight is None else weight.to(precision)
    by_value, by_one = torch.zeros_like(scale), torch.zeros_like(scale)
    if tile.numel():
        known = saved_inverse.double().pow(-2).sub(eps).to(precision)
        rows = tile.contiguous(memory_format=_get_memory_format(tile))  # torch rounds sums of 16-bit tensors with gaps
        _, by_value, by_one = call.func(
            grads, rows, scale, saved_mean, known, None, None, False, eps, (False, True, True)
        )
    ones, values = sum_pair(by_one, by_value, group.transport)
    group.log.count_bytes(16 * scale.numel())
    part = None
    if mask[0]:
        tile, grads, wrap = _add_margins(call, tensor, grad, tile, grads, layout)
        local = torch.empty_like(tile)
        if tile.numel():
            total = prod(layout.shape) // layout.shape[1]
            inverse = saved_inverse.double()
            first = scale * inverse
            second = -first * inverse * values / total
            rest = -first * ones / total - second * saved_mean
            wide = tile.to(precision)
            result = torch.addcmul(_view_channels(rest, wide), wide, _view_channels(second, wide))
            local = result.addcmul_(grads.to(precision), _view_channels(first, wide)).to(tile.dtype)
        part = wrap(local)
    dtype = saved_mean.dtype if weight is None else weight.dtype
    return part, values.to(dtype) if mask[1] else None, ones.to(dtype) if mask[2] else None


def _add_margins(
    call: Call, tensor: Tensor, grad: Tensor, tile: Tensor, grads: Tensor, layout: TensorLayout
) -> tuple[Tensor, Tensor, Callable[[Tensor], SplitTensor]]:
    """Return the parts of an input and of an output gradient with their common margin, and a wrapper of results."""
    wide = find_wide_parts([tensor, grad], layout, call.group)
    if wide is None or len(wide.parts) != 2:
        return tile, grads, lambda local: call.wrap(local, layout)
    return wide.parts[0], wide.parts[1], wide.wrap


def _get_memory_format(tile: Tensor) -> torch.memory_format:
    if tile.dim() == 4 and not tile.is_contiguous() and tile.is_contiguous(memory_format=torch.channels_last):
        return torch.channels_last
    return torch.contiguous_format


@rule(aten.native_group_norm.default)
def normalise_groups(call: Call) -> Any:
    tensor, weight, bias, samples, channels, _, groups, eps = call.args
    group = call.group
    layout = _choose_layout(tensor, group)
    if layout is None:
        return NO_RULE
    if 0 in layout.split_dims:
        layout = group.get_tiles(layout.shape, len(layout.shape) - 2) if len(layout.shape) > 2 else None
        if layout is None:
            return NO_RULE
    tile = redistribute(tensor, layout, group)
    total = prod(layout.shape) // (samples * groups)
    precision = get_sum_dtype(tile)
    if not tile.numel():
        own_mean = squares = torch.zeros(samples, groups, dtype=precision, device=tile.device)
        count = 0
    else:
        grouped = tile.reshape(samples, groups, -1, *tile.shape[2:])
        own_mean, squares = compute_own_statistics(grouped, range(2, grouped.dim()))
        count = tile.numel() // (samples * groups)
    mean, variance = combine_statistics(own_mean, squares, count, total, group.transport)
    group.log.count_bytes(32 * mean.numel())
    inverse = (variance + eps).rsqrt()
    weight, bias = gather(weight), gather(bias)
    margins = find_wide_parts([tensor], layout, group)
    tile = tile if margins is None else margins.parts[0]
    if not tile.numel():
        part = torch.empty_like(tile)
    else:
        factor = _expand_groups(inverse, channels) * (1 if weight is None else weight)
        shift = (0 if bias is None else bias) - _expand_groups(mean, channels) * factor
        wide = tile.to(precision)
        part = torch.addcmul(_view_samples(shift, wide), wide, _view_samples(factor, wide)).to(tile.dtype)
    return call.wrap(part, layout) if margins is None else margins.wrap(part), mean, inverse


def _expand_groups(values: Tensor, channels: int) -> Tensor:
    """Return values per sample and group as values per sample and channel."""
    return values.repeat_interleave(channels // values.shape[1], 1)


def _view_samples(values: Tensor, tile: Tensor) -> Tensor:
    return values.to(tile.dtype).view(*values.shape, *(1,) * (tile.dim() - 2))


@rule(aten.native_group_norm_backward.default)
def normalise_groups_backward(call: Call) -> Any:
    grad, tensor, mean, inverse, weight, samples, channels, _, groups, mask = call.args
    group = call.group
    layout = _choose_layout(tensor, group)
    if layout is None:
        return NO_RULE
    if 0 in layout.split_dims:
        return NO_RULE
    tile, grads = redistribute(tensor, layout, group), redistribute(grad, layout, group)
    weight, mean, inverse = gather(weight), gather(mean).double(), gather(inverse).double()
    means, inverses = _expand_groups(mean, channels), _expand_groups(inverse, channels)
    precision, spatial = get_sum_dtype(tile), tuple(range(2, tile.dim()))
    wide, grads = tile.to(precision), grads.to(precision)
    by_one = by_value = torch.zeros_like(means)
    if tile.numel():
        by_one = grads.sum(spatial).double()
        by_value = ((grads * wide).sum(spatial).double() - means * by_one) * inverses
    ones, values = sum_pair(by_one, by_value, group.transport)  # per sample and channel
    group.log.count_bytes(16 * ones.numel())
    total = prod(layout.shape) // (samples * groups)
    part = None
    if mask[0]:
        scale = 1 if weight is None else weight
        ones_by_group = (ones * scale).view(samples, groups, -1).sum(2)
        values_by_group = (values * scale).view(samples, groups, -1).sum(2)
        tile, grads, wrap = _add_margins(call, tensor, grad, tile, grads, layout)
        wide, grads = tile.to(precision), grads.to(precision)
        local = torch.empty_like(tile)
        if tile.numel():
            second = -inverses.square() * _expand_groups(values_by_group, channels) / total
            rest = -inverses * _expand_groups(ones_by_group, channels) / total - second * means
            result = torch.addcmul(_view_samples(rest, wide), wide, _view_samples(second, wide))
            local = result.addcmul_(grads, _view_samples(inverses * scale, wide)).to(tile.dtype)
        part = wrap(local)
    dtype = tile.dtype if weight is None else weight.dtype
    return part, values.sum(0).to(dtype) if mask[1] else None, ones.sum(0).to(dtype) if mask[2] else None


def _drop_trailing(layout: TensorLayout, count: int) -> TensorLayout:
    """Return the layout of statistics: the last `count` dims, which every rank has whole, have size one."""
    keep = len(layout.factors) - count
    at = [position for dim in range(keep) for position in layout.positions[dim]]
    return make_layout(
        [*layout.factors[:keep], *((),) * count], [Box(tuple(box.dims[i] for i in at)) for box in layout.boxes]
    )


@rule(aten.native_layer_norm.default)
def normalise_layer(call: Call) -> Any:
    tensor, shape, weight, bias, eps = call.args
    count = len(shape)
    local, layout = move_split(tensor, range(tensor.dim() - count, tensor.dim()), call.group)
    part, mean, inverse = call.func(local, shape, gather(weight), gather(bias), eps)
    statistics = _drop_trailing(layout, count)
    return call.wrap(part, layout), call.wrap(mean, statistics), call.wrap(inverse, statistics)


@rule(aten.native_layer_norm_backward.default)
def normalise_layer_backward(call: Call) -> Any:
    grad, tensor, shape, mean, inverse, weight, bias, mask = call.args
    count, group = len(shape), call.group
    local, layout = move_split(tensor, range(tensor.dim() - count, tensor.dim()), group)
    statistics = _drop_trailing(layout, count)
    grads = redistribute(grad, layout, group)
    own = [redistribute(value, statistics, group) for value in (mean, inverse)]
    weight, bias = gather(weight), gather(bias)
    results = call.func(grads.contiguous(), local.contiguous(), shape, *own, weight, bias, mask)
    part = call.wrap(results[0], layout) if mask[0] else None
    weights = [results[1] if mask[1] else None, results[2] if mask[2] else None]
    if layout.is_whole:
        return part, *weights
    if not layout.is_exclusive:
        return NO_RULE
    return part, *sum_weights(group, *weights)
