"""Choose where phases begin: at modules named by the user, or by size so that loads overlap with computing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessera.errors import TesseraError, suggest_similar

TARGET_PHASE_BYTES = 16 << 20  # bytes: reaches full read bandwidth, and leaves memory for resident phases
PHASE_OVERHEAD_BYTES = 256 << 10  # overhead of starting a phase, as the bytes that could be loaded in the same time


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitCost:
    """The cost that one unit adds to a phase: bytes to load, and FLOPs (None if unknown)."""

    bytes: int
    flops: int | None


def choose_phase_starts(costs: Sequence[UnitCost], limit: int, balance: float) -> list[int]:
    """Return the first unit of every phase, chosen to minimize the sum over phases of max(load, compute).

    `limit` is the largest phase in bytes. `balance` is the FLOPs computed while one byte is loaded. A unit larger than
    the limit is a phase of its own; whether it fits is decided when the budget is divided. The method is dynamic
    programming over the last phase.

    >>> costs = [UnitCost(bytes=6, flops=None), UnitCost(bytes=6, flops=None), UnitCost(bytes=1, flops=None)]
    >>> choose_phase_starts(costs, 8, 50)
    [0, 1]

    The load of the second unit overlaps with the FLOPs of the third unit:

    >>> units = [UnitCost(bytes=1 << 20, flops=0), UnitCost(bytes=4 << 20, flops=0), UnitCost(bytes=0, flops=200 << 20)]
    >>> choose_phase_starts(units, 4 << 20, 50)
    [0, 1]
    """
    # best[j]: the least cost of the units before j, and the first unit of their last phase
    best: list[tuple[float, int]] = [(0.0, 0)]
    for stop in range(1, len(costs) + 1):
        load, compute = 0, 0.0
        choices: list[tuple[float, int]] = []
        for start in range(stop - 1, -1, -1):
            load += costs[start].bytes
            compute += (costs[start].flops or 0) / balance
            if load > limit and start < stop - 1:
                break
            unhidden = load if start == 0 else 0  # the load of the first phase overlaps with no computation
            choices.append((best[start][0] + max(load, compute) + unhidden + PHASE_OVERHEAD_BYTES, start))
        best.append(min(choices))
    starts = []
    at = len(costs)
    while at:
        at = best[at][1]
        starts.append(at)
    return starts[::-1]


def find_phase_starts(modules: Sequence[str], names: Sequence[str | int]) -> list[int]:
    """Return the units at which phases begin, from names or numbers; `modules` are the modules of all units."""
    if not names:
        raise TesseraError("`phases` is empty", do="leave `phases` out to choose phases automatically")
    starts = {0}
    for name in names:
        if isinstance(name, int):
            if not 0 <= name < len(modules):
                raise TesseraError(
                    "`phases` contains an invalid layer number", got=name, allowed=f"0 to {len(modules) - 1}"
                )
            starts.add(name)
            continue
        first = next((i for i, m in enumerate(modules) if m == name or m.startswith(f"{name}.")), None)
        if first is None:
            raise TesseraError("`phases` names no module with weights", got=name, do=suggest_similar(name, modules))
        starts.add(first)
    return sorted(starts)
