"""Detect whether a network is stateless across calls, and whether the samples of a mini-batch are independent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from tessera.phased.paging.output_comparison import compute_difference

Call = tuple[tuple[Any, ...], Mapping[str, Any]]
MAX_SPLIT_DIFFERENCE = 1e-4  # relative to the largest value: a split batch may sum in a different order
_TABLES = ("_parameters", "_modules", "_flat_weights")


class StateObserver:
    """Detects changes of module attributes and of torch's random generator since its construction."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._before = self._take_snapshot()
        self._random = torch.get_rng_state()
        self.changed = False

    def compare(self) -> None:
        """Set `changed` if an attribute, a buffer or the random generator has changed."""
        if not self.changed:
            self.changed = self._take_snapshot() != self._before or not torch.equal(torch.get_rng_state(), self._random)

    def _take_snapshot(self) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        for module in self._network.modules():
            for name, value in module.__dict__.items():
                if name == "_buffers":
                    found += [(key, id(v), v._version if type(v) is Tensor else 0) for key, v in value.items()]
                elif name not in _TABLES:
                    size = len(value) if isinstance(value, list | dict | set) else 0
                    found.append((name, id(value), size))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitCalls:
    """Mini-batches split into parts: one call per part (`calls`), and the number of parts per mini-batch (`counts`)."""

    calls: list[Call]
    counts: list[int]


class SampleSplitter:
    """Splits the samples of mini-batches over devices, if the results stay the same.

    The first mini-batch of every kind (shapes and dtypes) is computed whole and split, and the results are compared. If
    they differ, mini-batches of this kind are not split.
    """

    def __init__(self, parts: int) -> None:
        self._parts = parts
        self._splittable: dict[object, bool] = {}

    def split_calls(self, calls: Sequence[Call], run: Callable[[Call], Any]) -> SplitCalls | None:
        """Split each mini-batch into parts; return None if a mini-batch cannot be split."""
        split = [self._split(call, run) for call in calls]
        if any(parts is None for parts in split):
            return None
        return SplitCalls(
            calls=[call for parts in split if parts is not None for call in parts],
            counts=[len(parts) for parts in split if parts is not None],
        )

    def join(self, split: SplitCalls, results: Sequence[Any]) -> list[Any]:
        """Join the results of the parts to one result per mini-batch."""
        joined, at = [], 0
        for count in split.counts:
            joined.append(_join([results[n] for n in range(at, at + count)]))
            at += count
        return joined

    def _split(self, call: Call, run: Callable[[Call], Any]) -> list[Call] | None:
        leaves, structure = pytree.tree_flatten(call)
        key = str([(tuple(v.shape), v.dtype) if isinstance(v, Tensor) else v for v in leaves])
        parts = _split_leaves(leaves, self._parts)
        if parts is None or self._splittable.get(key) is False:
            return None
        calls: list[Call] = [pytree.tree_unflatten(part, structure) for part in parts]
        if key not in self._splittable:
            self._splittable[key] = self._is_same(call, calls, run)
        return calls if self._splittable[key] else None

    def _is_same(self, call: Call, parts: list[Call], run: Callable[[Call], Any]) -> bool:
        copies = pytree.tree_map(lambda v: v.clone() if isinstance(v, Tensor) else v, (call, parts))
        whole = run(copies[0])
        try:
            split = _join([run(part) for part in copies[1]])
        except Exception:  # a network may refuse parts of a mini-batch in any way
            return False
        return compute_difference(split, whole) <= MAX_SPLIT_DIFFERENCE


def _split_leaves(leaves: Sequence[Any], parts: int) -> list[list[Any]] | None:
    sizes = [value.shape[0] for value in leaves if isinstance(value, Tensor) and value.dim()]
    if not sizes or sizes[0] < 2:
        return None
    samples, parts = sizes[0], min(parts, sizes[0])
    pieces = [
        value.tensor_split(parts) if isinstance(value, Tensor) and value.dim() and len(value) == samples else None
        for value in leaves
    ]
    return [
        [value if piece is None else piece[number] for value, piece in zip(leaves, pieces, strict=True)]
        for number in range(parts)
    ]


def _join(results: Sequence[Any]) -> Any:
    flat = [pytree.tree_flatten(result) for result in results]
    leaves = [
        torch.cat(values) if isinstance(values[0], Tensor) and values[0].dim() else values[0]
        for values in zip(*(leaves for leaves, _ in flat), strict=True)
    ]
    return pytree.tree_unflatten(leaves, flat[0][1])
