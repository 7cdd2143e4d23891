"""Executes a haloing between the cores' memories: every core's haloed shard from its own and others' input shards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tessera.coregrid.execution.calls import Calls
from tessera.coregrid.planning.ledger import Ledger
from tessera.coregrid.planning.sticks import Haloing
from tessera.geometry import Interval


@dataclass(frozen=True, slots=True)
class Push:
    """What one core's shard gets from another, or keeps of its own: sticks in order, into one range of it.

    The sticks that a core has follow one another in the padded images, with nothing but padding in between. So they
    come in one copy, which fills the padding with any stick; it is overwritten by the pads.
    """

    source: int
    into: Interval
    sticks: Tensor
    count: int


@dataclass(frozen=True, slots=True)
class HaloMoves:
    """A haloing as copies by index, for every row of cores what it pads and what comes from where."""

    sizes: tuple[int, ...]
    pads: tuple[Tensor, ...]
    pushes: tuple[tuple[Push, ...], ...]

    @classmethod
    def of(cls, haloing: Haloing) -> HaloMoves:
        pushes: list[list[Push]] = [[] for _ in haloing.sizes]
        for core, runs in enumerate(haloing.local):
            if runs:
                pushes[core].append(_push(core, runs))
        for (source, core), runs in haloing.remote.items():
            pushes[core].append(_push(source, runs))
        return cls(haloing.sizes, tuple(_sticks(runs) for runs in haloing.pads), tuple(map(tuple, pushes)))

    def run(
        self, shard: Callable[[int], Tensor], haloed: Callable[[int], Tensor], padding: float, calls: Calls
    ) -> Ledger:
        """Fill the haloed shards of one column of cores, given each core's input shard and its haloed one."""
        moved = Ledger()
        for core, size in enumerate(self.sizes):
            if not size:
                continue
            target = haloed(core)
            for push in self.pushes[core]:
                source = shard(push.source)
                calls.do(torch.index_select, source, 0, push.sticks, out=target[push.into.slice])
                sent = push.count * source.shape[1] * source.element_size()
                moved += Ledger(local=sent) if push.source == core else Ledger(remote=sent)
            if len(self.pads[core]):
                calls.do(target.index_fill_, 0, self.pads[core], padding)
        return moved


def _push(source: int, runs: tuple[tuple[int, int, int], ...]) -> Push:
    first, last = runs[0][1], runs[-1][1] + runs[-1][2]
    sticks = np.zeros(last - first, dtype=np.int64)
    for taken, placed, length in runs:
        sticks[placed - first : placed - first + length] = np.arange(taken, taken + length)
    return Push(source, Interval(first, last), torch.from_numpy(sticks), sum(length for _, _, length in runs))


def _sticks(runs: tuple[tuple[int, int], ...]) -> Tensor:
    found = [np.arange(placed, placed + length) for placed, length in runs]
    return torch.from_numpy(np.concatenate(found) if found else np.empty(0, dtype=np.int64))
