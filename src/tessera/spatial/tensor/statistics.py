"""Means and variances over the parts of all ranks, without loss of digits."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from tessera.transport.transport import Transport

BLOCK_ELEMENTS = 1 << 16  # 256 KiB of float32: stays in the cache between the two passes


def compute_own_statistics(values: Tensor, dims: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the mean and the sum of squared deviations of this rank's values over some dims.

    Two passes of plain sums; on a CPU, they are several times faster than `torch.var_mean`. Large tensors on a CPU are
    read in blocks that stay in the cache, if the dims are the last ones, or the first one and the last ones.
    """
    dims, shape = tuple(dims), values.shape
    first = dims[0] or (dims[1] if len(dims) > 1 else 0)
    is_large = values.numel() > BLOCK_ELEMENTS and values.device.type == "cpu"
    if not is_large or not first or dims[-1] != len(shape) - 1 or not values.is_contiguous():
        mean = values.mean(dims, keepdim=True, dtype=get_sum_dtype(values))
        squares = (values - mean).square_().sum(dims)
        return mean.view_as(squares), squares
    length = prod(shape[first:])
    least = -(-length // BLOCK_ELEMENTS)
    pieces = next((count for count in range(least, 4 * least) if length % count == 0), 1)
    means, squares = _compute_by_blocks(values.view(-1, length // pieces))
    merged = (-1,) if dims[0] else (0, -1)
    means, squares = (part.double().view(*shape[:first], pieces) for part in (means, squares))
    mean = means.mean(merged, keepdim=True)
    squares = squares.addcmul(means - mean, means - mean, value=length // pieces).sum(merged)
    precision = get_sum_dtype(values)
    return mean.view_as(squares).to(precision), squares.to(precision)


def _compute_by_blocks(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean and the sum of squared deviations of every row."""
    count, length = rows.shape
    precision, step = get_sum_dtype(rows), max(1, BLOCK_ELEMENTS // length)
    mean, squares = (torch.empty(count, 1, dtype=precision, device=rows.device) for _ in range(2))
    scratch = torch.empty(min(step, count), length, dtype=precision, device=rows.device)
    for start in range(0, count, step):
        block, part = rows[start : start + step], mean[start : start + step]
        torch.mean(block, 1, keepdim=True, dtype=precision, out=part)
        deviations = scratch[: len(block)]
        torch.sub(block, part, out=deviations)
        torch.sum(deviations.square_(), 1, keepdim=True, out=squares[start : start + step])
    return mean, squares


def get_sum_dtype(values: Tensor) -> torch.dtype:
    """Return the dtype in which values are summed: 16-bit values are summed in float32, as in torch."""
    return torch.float64 if values.dtype == torch.float64 else torch.float32


def combine_statistics(
    mean: Tensor, squares: Tensor, count: int, total: int, transport: Transport
) -> tuple[Tensor, Tensor]:
    """Return the mean and the (biased) variance of `total` values, `count` of which are on this rank.

    `mean` and `squares` (the sum of squared deviations) describe the rank's own values; both are 0 if `count` is 0.
    Sums are in double precision. For values of dtype float64, deviations are relative to the common mean, which
    requires a second all-reduce: a variance much smaller than the mean would otherwise be lost.
    """
    moments = torch.stack([mean, squares]).double()
    pivot: Tensor | None = None
    if mean.dtype == torch.float64:
        pivot = _sum(mean * count, transport).div_(total)
        moments[0].sub_(pivot)
    offset, spread = moments.unbind()
    spread.addcmul_(offset, offset, value=count)
    offset.mul_(count)
    shift, spread = _sum(moments, transport).div_(total).unbind()
    variance = spread.addcmul(shift, shift, value=-1).clamp_min_(0)
    return shift if pivot is None else shift.add_(pivot), variance


def _sum(values: Tensor, transport: Transport) -> Tensor:
    transport.all_reduce(values)
    return values


def sum_pair(first: Tensor, second: Tensor, transport: Transport) -> tuple[Tensor, Tensor]:
    """All-reduce two tensors in one message, in double precision, and return the sums."""
    both = _sum(torch.stack([first.double(), second.double()]), transport)
    return both[0], both[1]
