"""Fill the haloed shards: copy sticks between the memories of the cores, and write the padding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tessera.coregrid.execution.replay import CallRecorder
from tessera.coregrid.planning.halo import HaloRuns
from tessera.coregrid.planning.ledger import Ledger
from tessera.geometry import Interval


@dataclass(frozen=True, slots=True)
class StickCopy:
    """The copy of sticks from core `source` into the range `into` of another core's haloed shard.

    The sticks of one source are in order, with only padding between them. One indexed copy therefore fills the whole
    range; the padding in the range is overwritten afterwards.
    """

    source: int
    into: Interval
    sticks: Tensor
    count: int


@dataclass(frozen=True, slots=True)
class HaloMoves:
    """Halo exchange as indexed copies: size of the haloed shard, padding, and copies for every row of cores."""

    sizes: tuple[int, ...]
    pads: tuple[Tensor, ...]
    copies: tuple[tuple[StickCopy, ...], ...]

    @classmethod
    def of(cls, halo_runs: HaloRuns) -> HaloMoves:
        copies: list[list[StickCopy]] = [[] for _ in halo_runs.sizes]
        for core, runs in enumerate(halo_runs.local):
            if runs:
                copies[core].append(_build_stick_copy(core, runs))
        for (source, core), runs in halo_runs.remote.items():
            copies[core].append(_build_stick_copy(source, runs))
        return cls(halo_runs.sizes, tuple(_list_sticks(runs) for runs in halo_runs.pads), tuple(map(tuple, copies)))

    def exchange(
        self, shard: Callable[[int], Tensor], haloed: Callable[[int], Tensor], padding: float, calls: CallRecorder
    ) -> Ledger:
        """Fill the haloed shards of one column of cores and return the bytes moved."""
        ledger = Ledger()
        for core, size in enumerate(self.sizes):
            if not size:
                continue
            target = haloed(core)
            for copy in self.copies[core]:
                source = shard(copy.source)
                calls.call(torch.index_select, source, 0, copy.sticks, out=target[copy.into.slice])
                sent = copy.count * source.shape[1] * source.element_size()
                ledger += Ledger(local=sent) if copy.source == core else Ledger(remote=sent)
            if len(self.pads[core]):
                calls.call(target.index_fill_, 0, self.pads[core], padding)
        return ledger


def _build_stick_copy(source: int, runs: tuple[tuple[int, int, int], ...]) -> StickCopy:
    first, last = runs[0][1], runs[-1][1] + runs[-1][2]
    sticks = np.zeros(last - first, dtype=np.int64)
    for start, destination, length in runs:
        sticks[destination - first : destination - first + length] = np.arange(start, start + length)
    return StickCopy(source, Interval(first, last), torch.from_numpy(sticks), sum(length for _, _, length in runs))


def _list_sticks(runs: tuple[tuple[int, int], ...]) -> Tensor:
    ranges = [np.arange(destination, destination + length) for destination, length in runs]
    return torch.from_numpy(np.concatenate(ranges) if ranges else np.empty(0, dtype=np.int64))
