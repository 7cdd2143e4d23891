"""Batch normalisation with the statistics of the whole batch, wherever its pixels are."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from tessera.errors import TesseraError
from tessera.spatial.layers.framed import layout_of
from tessera.spatial.layers.layer import AsItIs, Layer, makes
from tessera.spatial.layers.statistics import over_all_ranks, own_statistics, precision_of, sums_over_all_ranks
from tessera.spatial.placed import Placed, Settings
from tessera.transport.transport import Transport

BatchNormNd = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d


@makes(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
def batch_norm(module: BatchNormNd, placed: Placed, settings: Settings) -> Layer:
    if placed.kind == "whole" or placed.mesh.size == 1:
        return AsItIs(module, placed, placed)
    return BatchNorm(module, placed, settings.transport)


class BatchNorm:
    """In training over the pixels of all ranks; otherwise by the running statistics, which every rank has."""

    def __init__(self, module: BatchNormNd, placed: Placed, transport: Transport) -> None:
        self._module, self.placed, self._transport = module, placed, transport
        self._as_it_is = AsItIs(module, placed, placed)
        self._total = prod(placed.sizes)

    def __call__(self, tile: Tensor) -> Tensor:
        module = self._module
        if not module.training and module.running_mean is not None:
            return self._as_it_is(tile)
        if self._total == 1:
            raise TesseraError("batch statistics need more than one value per channel", got=tuple(self.placed.sizes))
        with torch.no_grad():
            mean, squares, count = _own_statistics(tile)
            mean, variance = over_all_ranks(mean, squares, count, self._total, self._transport)
            self._track(mean, variance)
        found: Tensor = _Normalise.apply(  # type: ignore[no-untyped-call]
            tile, module.weight, module.bias, mean, variance, module.eps, self._total, self._transport
        )
        return found

    def _track(self, mean: Tensor, variance: Tensor) -> None:
        """The running statistics, as torch keeps them: of the unbiased variance."""
        module = self._module
        running_mean, running_var = module.running_mean, module.running_var
        if not (module.training and module.track_running_stats) or running_mean is None or running_var is None:
            return
        new = module.momentum
        if module.num_batches_tracked is not None:
            module.num_batches_tracked.add_(1)
            if new is None:
                new = 1 / float(module.num_batches_tracked)
        unbiased = variance * (self._total / (self._total - 1))
        for running, found in ((running_mean, mean), (running_var, unbiased)):
            running.lerp_(found.to(running.dtype), 0.0 if new is None else new)


def _own_statistics(tile: Tensor) -> tuple[Tensor, Tensor, int]:
    """Mean, sum of squared deviations and number of this rank's values of each channel."""
    channels, precision = tile.shape[1], precision_of(tile)
    if not tile.numel():
        nothing = torch.zeros(channels, dtype=precision)
        return nothing, nothing, 0
    count = tile.numel() // channels
    if layout_of(tile) == torch.contiguous_format or tile.dtype != precision:
        mean, squares = own_statistics(tile, [0, *range(2, tile.dim())])
    else:  # where channels come last, torch's own kernel is the fastest
        mean, variance = torch.batch_norm_update_stats(tile, None, None, 0.0)
        squares = variance * count
    return mean, squares, count


class _Normalise(torch.autograd.Function):
    """Forward a pass of torch's own; backward its sums, added over the ranks, then a linear pass."""

    @staticmethod
    def forward(
        ctx: Any,
        tile: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        mean: Tensor,
        variance: Tensor,
        eps: float,
        total: int,
        transport: Transport,
    ) -> Tensor:
        mean, variance = mean.to(precision_of(tile)), variance.to(precision_of(tile))
        ctx.save_for_backward(tile, weight, bias, mean, variance)
        ctx.eps, ctx.total, ctx.transport = eps, total, transport
        if not tile.numel():
            return torch.empty_like(tile)
        weight, bias = (None if given is None else given.to(mean.dtype) for given in (weight, bias))
        return F.batch_norm(tile, mean, variance, weight, bias, training=False, eps=eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        tile, weight, bias, mean, variance = ctx.saved_tensors
        of_tile, of_weight, of_bias = ctx.needs_input_grad[:3]
        scale = torch.ones_like(mean) if weight is None else weight.to(mean.dtype)
        grad = grad.contiguous(memory_format=layout_of(tile))  # torch is slow where the two lie differently
        by_value, by_one = torch.zeros_like(scale), torch.zeros_like(scale)
        if tile.numel():
            _, by_value, by_one = torch.ops.aten.native_batch_norm_backward(
                grad, tile, scale, mean, variance, None, None, False, ctx.eps, [False, True, True]
            )
        grad_tile = None
        if of_tile:
            ones, values = sums_over_all_ranks(by_one, by_value, ctx.transport)
            grad_tile = torch.empty_like(tile)
            if tile.numel():
                inverse = (variance.double() + ctx.eps).rsqrt()
                first = scale * inverse
                second = -first * inverse * values / ctx.total
                rest = -first * ones / ctx.total - second * mean
                wide = tile.to(mean.dtype)  # halves would lose the digits of a large mean
                found = torch.addcmul(_per_channel(rest, wide), wide, _per_channel(second, wide))
                grad_tile = found.addcmul_(grad.to(mean.dtype), _per_channel(first, wide)).to(tile.dtype)
        grad_weight = by_value.to(weight.dtype) if of_weight else None
        grad_bias = by_one.to(bias.dtype) if of_bias else None
        return grad_tile, grad_weight, grad_bias, *(None,) * 5


def _per_channel(values: Tensor, tile: Tensor) -> Tensor:
    return values.to(tile.dtype).view(1, -1, *(1 for _ in tile.shape[2:]))
