"""Sizes of phases: the memory that a phase needs, its largest size for a budget, and the choice of resident phases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessera.phased.traits import ScheduleTraits

ALIGNMENT_BYTES = 64  # a cache line


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseNeed:
    """Bytes that one phase requires: `buffer` to load it, and `wide` for its widened weights (0 if not widened).

    `decoded` is the part of the buffer for weights that are decoded while they are loaded.
    """

    name: str
    units: tuple[str, ...]
    buffer: int
    wide: int
    decoded: int = 0

    @property
    def resident(self) -> int:
        """Bytes of the phase if it is resident, in its compute dtype."""
        return self.wide or self.decoded or self.buffer


def compute_max_phase_bytes(
    schedule: ScheduleTraits, devices: int, budget: int, *, largest_unit: int, widening: float
) -> int:
    """Return the largest allowed size of a phase in stored bytes; `widening` is widened bytes per stored byte."""
    least, most = schedule.count_buffers(devices)
    for buffers in range(most, least - 1, -1):
        limit = int(budget / (buffers + widening)) if buffers else budget
        if limit >= largest_unit:
            return limit
    # The largest unit is a phase of its own. Other units may share a phase if the remaining memory can hold it widened.
    return max(0, min(largest_unit, int((budget - least * largest_unit) / widening))) if widening else largest_unit


def choose_resident(needs: Sequence[PhaseNeed], free: int) -> tuple[int, ...]:
    """Choose the phases that stay in memory: at most `free` bytes in total, spread evenly over the network.

    A streamed phase can then load while a resident phase computes.
    """
    total, share = sum(need.resident for need in needs), free
    chosen: list[int] = []
    credit = 0  # total x (free share of the bytes of the phases so far - bytes of the chosen phases), in integers
    for index, need in enumerate(needs):
        credit += share * need.resident
        if credit >= total * need.resident and need.resident <= free:
            chosen.append(index)
            credit -= total * need.resident
            free -= need.resident
    return tuple(chosen)
