"""Sums of weight gradients over the ranks, many gradients per message.

Backward, the rule of a layer computes this rank's contribution to the gradient of a weight. The contribution is kept as
a *pending sum*: a split tensor that is summed when it is first read. Pending sums are collected in a bucket. A bucket
is summed in one message when it has `BUCKET_BYTES`, when one of its sums is read, or when the backward pass ends. An
operator that needs a gradient earlier, for example in a hook of the user, therefore gets the complete sum.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tessera.spatial.tensor.layout import make_whole
from tessera.spatial.tensor.split_tensor import NO_RULE, PENDING_RULES, Call, SplitGroup, SplitTensor, gather

aten = torch.ops.aten
BUCKET_BYTES = 25 << 20  # as in DistributedDataParallel


class PendingSum:
    """A weight gradient of which this rank has its contribution `part`. A call returns the sum over all ranks."""

    __slots__ = ("_bucket", "_dtype", "_total", "part")

    def __init__(self, bucket: GradientBucket, part: Tensor, dtype: torch.dtype) -> None:
        self._bucket, self._dtype, self.part = bucket, dtype, part
        self._total: Tensor | None = None

    def __call__(self) -> Tensor:
        if self._total is None:
            self._bucket.flush()
        if self._total is None:  # replaced by another sum, and needed nevertheless
            self._bucket.sum_now([self])
        assert self._total is not None
        return self._total

    @property
    def is_known(self) -> bool:
        return self._total is not None

    def set_total(self, total: Tensor) -> None:
        self._total = total.to(self._dtype)
        del self.part

    def replace(self, part: Tensor, dtype: torch.dtype, *others: PendingSum) -> SplitTensor:
        """Return a pending sum of another contribution, which replaces this one and some others."""
        self._bucket.discard(self, *others)
        return self._bucket.add(part, dtype)


class GradientBucket:
    """The pending sums of a group, in the order in which they were computed, which is equal on all ranks."""

    def __init__(self, group: SplitGroup) -> None:
        self._get_group = weakref.ref(group)  # the group keeps its bucket, and must not keep itself alive
        self._sums: dict[PendingSum, int] = {}  # with the bytes of each
        self._bytes = 0
        self._weights: list[Tensor] = []  # whose `grad` may be a pending sum
        self._task = -1  # backward pass at whose end the bucket is flushed

    @property
    def _group(self) -> SplitGroup:
        group = self._get_group()
        assert group is not None, "the backward pass keeps the group of its tensors"
        return group

    def add(self, part: Tensor, dtype: torch.dtype) -> SplitTensor:
        """Return a pending sum as a split tensor, which autograd can pass on to the weight."""
        pending = PendingSum(self, part, dtype)
        strides, step = [1] * part.dim(), 1
        for dim in reversed(range(part.dim())):
            strides[dim], step = step, step * max(1, part.shape[dim])
        tensor = self.make_tensor(part.shape, tuple(strides), part.new_empty((), dtype=dtype), pending)
        self._sums[pending] = part.nbytes
        self._bytes += part.nbytes
        self._end_with_the_pass()
        if self._bytes >= BUCKET_BYTES:
            self.flush()
        return tensor

    def make_tensor(
        self, shape: torch.Size, strides: tuple[int, ...], like: Tensor, pending: Callable[[], Tensor]
    ) -> SplitTensor:
        """Return a whole tensor that is computed when it is first read."""
        unread = like.new_full((), float("nan")).expand(shape)
        group = self._group
        tensor = SplitTensor(unread, make_whole(shape, group.ranks), group, strides)
        tensor.pending = pending
        return tensor

    def discard(self, *sums: PendingSum) -> None:
        for pending in sums:
            self._bytes -= self._sums.pop(pending, 0)

    def deliver(self, weight: Tensor) -> None:
        """Make the gradient of a weight a plain tensor at the end of the backward pass."""
        self._weights.append(weight)
        self._end_with_the_pass()

    def flush(self) -> None:
        """Sum all pending sums, in one message per dtype."""
        sums, self._sums, self._bytes = list(self._sums), {}, 0
        if sums:
            self.sum_now(sums)

    def sum_now(self, sums: Sequence[PendingSum]) -> None:
        totals = _sum_parts([pending.part for pending in sums], self._group)
        for pending, total in zip(sums, totals, strict=True):
            pending.set_total(total)

    def _end_with_the_pass(self) -> None:
        task = torch._C._current_graph_task_id()
        if task not in (-1, self._task):
            self._task = task
            torch.autograd.Variable._execution_engine.queue_callback(partial(self._end_pass, self._group))

    def _end_pass(self, group: SplitGroup) -> None:
        """Deliver all sums. The argument keeps the group until the end of the pass."""
        self._task = -1
        self.flush()
        weights, self._weights = self._weights, []
        for weight in weights:
            if isinstance(weight.grad, SplitTensor):
                weight.grad = gather(weight.grad.detach())

    def clear(self) -> None:
        """Forget the sums of a backward pass that ended with an error; called before a forward pass."""
        if torch._C._current_graph_task_id() == -1:
            self._sums, self._bytes, self._weights, self._task = {}, 0, [], -1


def get_bucket(group: SplitGroup) -> GradientBucket:
    if group.bucket is None:
        group.bucket = GradientBucket(group)
    bucket: GradientBucket = group.bucket
    return bucket


def _may_defer(group: SplitGroup) -> bool:
    """Return whether sums may be pending: in a backward pass without `create_graph`."""
    if group.ranks == 1 or not group.defers_sums:
        return False
    return not torch.is_grad_enabled() and torch._C._current_graph_task_id() != -1


def sum_weights(group: SplitGroup, *parts: Tensor | None, dtype: torch.dtype | None = None) -> list[Tensor | None]:
    """Sum the contributions of all ranks to the gradients of some weights, which every rank then has whole.

    The sums have the dtype of the contributions, or `dtype`. They may be pending.
    """
    if _may_defer(group):
        bucket = get_bucket(group)
        return [None if part is None else bucket.add(part, dtype or part.dtype) for part in parts]
    present = [part for part in parts if part is not None]
    sums = iter(_sum_parts(present, group) if group.ranks > 1 else present)
    return [None if part is None else next(sums).to(dtype or part.dtype) for part in parts]


def sum_whole(group: SplitGroup, part: Tensor, dtype: torch.dtype) -> SplitTensor:
    """Return the sum of the tensors of all ranks, converted to a dtype; backward it may be pending.

    It may be the gradient of a weight or of an activation, and is never summed in half precision.
    """
    if _may_defer(group) and group.add_weights == group.transport.all_reduce:
        return get_bucket(group).add(part, dtype)
    return SplitTensor(group.sum(part).to(dtype), make_whole(part.shape, group.ranks), group)


def _sum_parts(parts: Sequence[Tensor], group: SplitGroup) -> list[Tensor]:
    """All-reduce tensors in one message per dtype; the sums are contiguous. Strides may differ between ranks."""
    sums = list(parts)
    for dtype in dict.fromkeys(part.dtype for part in parts):
        chosen = [number for number, part in enumerate(parts) if part.dtype == dtype]
        flat = torch.cat([parts[number].reshape(-1) for number in chosen])
        group.add_weights(flat)
        totals = torch.split(flat, [parts[number].numel() for number in chosen])
        for number, total in zip(chosen, totals, strict=True):
            sums[number] = total.view(parts[number].shape)
    return sums


def find_pending_sum(tensor: Any) -> PendingSum | None:
    """Return the pending sum of a tensor; None if it has none, or if the sum is known."""
    pending = tensor.pending if isinstance(tensor, SplitTensor) else None
    return pending if isinstance(pending, PendingSum) and not pending.is_known else None


# Autograd applies these operators to gradients of weights. All are linear, so they apply to the contributions.
LINEAR: list[Any] = [
    aten.t.default,
    aten.transpose.int,
    aten.permute.default,
    aten.view.default,
    aten._unsafe_view.default,
]
DEFAULTS: dict[str, list[Any]] = {  # options of a conversion that change nothing
    "layout": [None, torch.strided],
    "device": [None, torch.device("cpu")],
    "pin_memory": [None, False],
    "non_blocking": [None, False],
    "memory_format": [None, torch.preserve_format],
}


def _change_part(call: Call) -> Any:
    pending = find_pending_sum(call.args[0])
    if pending is None:
        return NO_RULE
    part = pending.part
    if call.func in (aten.view.default, aten._unsafe_view.default):
        part = part.contiguous()  # the sum is contiguous
    return pending.replace(call.func(part, *call.args[1:], **call.kwargs), call.args[0].dtype)


def _convert(call: Call) -> Any:
    pending = find_pending_sum(call.args[0])
    options = {name: value for name, value in call.kwargs.items() if value not in DEFAULTS.get(name, [None])}
    if pending is None or set(options) - {"dtype"}:
        return NO_RULE
    return pending.replace(pending.part, call.kwargs.get("dtype", call.args[0].dtype))


def _add(call: Call) -> Any:
    first, second = (find_pending_sum(value) for value in call.args[:2])
    if first is None or second is None or call.kwargs or call.args[0].group is not call.args[1].group:
        return NO_RULE
    if first is second or call.args[0].shape != call.args[1].shape or first.part.dtype != second.part.dtype:
        return NO_RULE
    return first.replace(first.part + second.part, call.args[0].dtype, second)


PENDING_RULES.update(dict.fromkeys(LINEAR, _change_part))
PENDING_RULES[aten._to_copy.default] = _convert
PENDING_RULES[aten.add.Tensor] = _add


class StoredGradient:
    """A pending sum as the gradient of a weight: added to the existing gradient, or with the strides of the weight."""

    __slots__ = ("_gradient", "_is_new", "_pending")

    def __init__(self, pending: PendingSum, weight: Tensor) -> None:
        self._pending: PendingSum | None = pending
        self._is_new = weight.grad is None
        self._gradient = weight.detach() if weight.grad is None else gather(weight.grad.detach())

    def __call__(self) -> Tensor:
        if self._pending is None:
            return self._gradient
        total, self._pending = self._pending(), None
        if not self._is_new:
            self._gradient.add_(total)
        elif total.stride() == self._gradient.stride():
            self._gradient = total
        else:
            self._gradient = torch.empty_like(self._gradient).copy_(total)
        return self._gradient


def store(gradient: SplitTensor, weight: Tensor) -> SplitTensor:
    """Return the tensor that autograd is to store as `weight.grad`; its sum remains pending.

    Autograd would add it to an existing gradient at once, which requires the sum. The existing gradient is therefore
    taken off the weight, and is part of the pending result.
    """
    pending = find_pending_sum(gradient)
    assert pending is not None
    bucket = get_bucket(gradient.group)
    stored = bucket.make_tensor(weight.shape, weight.stride(), weight, StoredGradient(pending, weight))
    weight.grad = None
    bucket.deliver(weight)
    return stored
