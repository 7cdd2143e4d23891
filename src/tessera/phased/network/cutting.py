"""Where to cut a network into phases: within a limit of bytes, so that loads hide behind computing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

TARGET = 16 << 20  # bytes: large enough for full read bandwidth, small enough to leave room for phases that stay
OVERHEAD = 256 << 10  # what starting a phase costs, in bytes that could have been loaded meanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitCost:
    """What one unit adds to a phase: bytes to load, and FLOPs where they are known."""

    bytes: int
    flops: int | None


def cut(costs: Sequence[UnitCost], limit: int, balance: float) -> list[int]:
    """The first unit of every phase, with the least sum over phases of max(load, compute) that the limit allows.

    `balance` is how many FLOPs are computed while one byte is loaded. A unit larger than the limit is a phase of its
    own; the budget has the last word on it.

    >>> cut([UnitCost(bytes=6, flops=None), UnitCost(bytes=6, flops=None), UnitCost(bytes=1, flops=None)], 8, 50)
    [0, 1]

    The load of the second unit and the FLOPs of the third hide one another:

    >>> units = [UnitCost(bytes=1 << 20, flops=0), UnitCost(bytes=4 << 20, flops=0), UnitCost(bytes=0, flops=200 << 20)]
    >>> cut(units, 4 << 20, 50)
    [0, 1]
    """
    # best[j]: the least cost of the units before j, and where the last phase of it begins
    best: list[tuple[float, int]] = [(0.0, 0)]
    for stop in range(1, len(costs) + 1):
        load, compute = 0, 0.0
        choices: list[tuple[float, int]] = []
        for start in range(stop - 1, -1, -1):
            load += costs[start].bytes
            compute += (costs[start].flops or 0) / balance
            if load > limit and start < stop - 1:
                break
            unhidden = load if start == 0 else 0  # nothing is computed before the first phase is there
            choices.append((best[start][0] + max(load, compute) + unhidden + OVERHEAD, start))
        best.append(min(choices))
    starts = []
    at = len(costs)
    while at:
        at = best[at][1]
        starts.append(at)
    return starts[::-1]
