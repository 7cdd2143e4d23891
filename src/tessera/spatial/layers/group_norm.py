"""Normalisation of each sample over groups of its channels, over all its pixels on all ranks."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tessera.errors import TesseraError
from tessera.spatial.layers.layer import AsItIs, Layer, is_cut, makes
from tessera.spatial.layers.statistics import over_all_ranks, own_statistics, precision_of, sums_over_all_ranks
from tessera.spatial.placed import Placed, Settings
from tessera.transport.transport import Transport

InstanceNormNd = nn.InstanceNorm1d | nn.InstanceNorm2d | nn.InstanceNorm3d


@makes(nn.GroupNorm)
def group_norm(module: nn.GroupNorm, placed: Placed, settings: Settings) -> Layer:
    if placed.kind == "whole" or placed.mesh.size == 1:
        return AsItIs(module, placed, placed)
    _check_count(module.num_channels // module.num_groups * prod(placed.sizes[1:]))
    return _per_sample(module, module.num_groups, placed, settings)


@makes(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
def instance_norm(module: InstanceNormNd, placed: Placed, settings: Settings) -> Layer:
    """A group for each channel."""
    if placed.kind == "whole" or placed.mesh.size == 1:
        return AsItIs(module, placed, placed)
    if module.track_running_stats:
        raise TesseraError("running statistics of images are not kept on tiles", do="track_running_stats=False")
    _check_count(prod(placed.sizes[1:]))
    return _per_sample(module, None, placed, settings)


def _check_count(values: int) -> None:
    if values == 1:  # torch refuses it too, or not, depending on how many samples there are
        raise TesseraError("the statistics of a sample need more than one value")


def _per_sample(module: nn.GroupNorm | InstanceNormNd, groups: int | None, placed: Placed, settings: Settings) -> Layer:
    if not is_cut(placed):
        return AsItIs(module, placed, placed)
    return GroupNorm(module, groups, placed, settings.transport)


class GroupNorm:
    """Every rank has a part of every sample: statistics are added over the ranks."""

    def __init__(
        self, module: nn.GroupNorm | InstanceNormNd, groups: int | None, placed: Placed, transport: Transport
    ) -> None:
        self._module, self._groups, self.placed, self._transport = module, groups, placed, transport

    def __call__(self, tile: Tensor) -> Tensor:
        module, groups = self._module, self._groups or tile.shape[1]
        samples, *spatial = self.placed.sizes
        each = tile.shape[1] // groups
        total = each * prod(spatial)
        with torch.no_grad():
            mean, squares, count = _own_statistics(tile, samples, groups)
            mean, variance = over_all_ranks(mean, squares, count, total, self._transport)
            inverse = (variance + module.eps).rsqrt()
        found: Tensor = _Normalise.apply(  # type: ignore[no-untyped-call]
            tile, module.weight, module.bias, mean, inverse, total, self._transport
        )
        return found


def _own_statistics(tile: Tensor, samples: int, groups: int) -> tuple[Tensor, Tensor, int]:
    """Mean, sum of squared deviations and number of this rank's values of each group of each sample."""
    if not tile.numel():
        nothing = torch.zeros(samples, groups, dtype=precision_of(tile))
        return nothing, nothing, 0
    grouped = tile.view(samples, groups, -1, *tile.shape[2:])
    mean, squares = own_statistics(grouped, range(2, grouped.dim()))
    return mean, squares, tile.numel() // (samples * groups)


class _Normalise(torch.autograd.Function):
    """A linear pass forward; backward two sums for each channel of each sample, and another linear pass."""

    @staticmethod
    def forward(
        ctx: Any,
        tile: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        mean: Tensor,
        inverse: Tensor,
        total: int,
        transport: Transport,
    ) -> Tensor:
        ctx.save_for_backward(tile, weight, bias, mean, inverse)
        ctx.total, ctx.transport = total, transport
        if not tile.numel():
            return torch.empty_like(tile)
        factor = _to_channels(inverse, tile) * (1 if weight is None else weight)
        shift = (0 if bias is None else bias) - _to_channels(mean, tile) * factor
        wide = tile.to(precision_of(tile))  # a shift that is large beside the result would lose its digits
        return torch.addcmul(_per_pixel(shift, wide), wide, _per_pixel(factor, wide)).to(tile.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        tile, weight, bias, mean, inverse = ctx.saved_tensors
        means, inverses = _to_channels(mean, tile), _to_channels(inverse, tile)
        spatial = tuple(range(2, tile.dim()))
        by_one = torch.zeros_like(means)
        by_value = torch.zeros_like(means)
        wide, grad = tile.to(precision_of(tile)), grad.to(precision_of(tile))
        if tile.numel():  # by sample and channel
            by_one = grad.sum(spatial).double()
            by_value = ((grad * wide).sum(spatial).double() - means * by_one) * inverses
        grad_tile = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            scale = 1 if weight is None else weight
            samples, groups = mean.shape
            ones, values = sums_over_all_ranks(
                (by_one * scale).view(samples, groups, -1).sum(2),
                (by_value * scale).view(samples, groups, -1).sum(2),
                ctx.transport,
            )
            grad_tile = torch.empty_like(tile)
            if tile.numel():
                second = -inverses.square() * _to_channels(values, tile) / ctx.total
                rest = -inverses * _to_channels(ones, tile) / ctx.total - second * means
                found = torch.addcmul(_per_pixel(rest, wide), wide, _per_pixel(second, wide))
                grad_tile = found.addcmul_(grad, _per_pixel(inverses * scale, wide)).to(tile.dtype)
        if ctx.needs_input_grad[1]:
            grad_weight = by_value.sum(0).to(weight.dtype)
        if ctx.needs_input_grad[2]:
            grad_bias = by_one.sum(0).to(bias.dtype)
        return grad_tile, grad_weight, grad_bias, *(None,) * 4


def _to_channels(values: Tensor, tile: Tensor) -> Tensor:
    """What holds for a group, for each of its channels."""
    return values.repeat_interleave(tile.shape[1] // values.shape[1], dim=1)


def _per_pixel(values: Tensor, tile: Tensor) -> Tensor:
    return values.to(tile.dtype).view(*values.shape, *(1 for _ in tile.shape[2:]))
