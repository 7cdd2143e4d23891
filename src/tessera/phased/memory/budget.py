"""Division of a memory budget into stream buffers, areas for weights widened to float32, and resident phases.

The functions only compute sizes, so a network that does not fit is refused before anything is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessera.errors import TesseraError
from tessera.phased.traits import ScheduleTraits
from tessera.report.figures import format_bytes

ALIGNMENT_BYTES = 64  # a cache line


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseNeed:
    """Bytes that one phase requires: `buffer` to load it, and `wide` for its widened weights (0 if not widened)."""

    name: str
    units: tuple[str, ...]
    buffer: int
    wide: int

    @property
    def resident(self) -> int:
        """Bytes of the phase if it is resident, in its compute dtype."""
        return self.wide or self.buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryDivision:
    """A divided budget: `buffers` x `buffer` bytes, `areas` x `wide` bytes for widened weights, `resident` phases."""

    buffers: int
    buffer: int
    areas: int
    wide: int
    resident: tuple[int, ...]
    resident_bytes: int

    @property
    def nbytes(self) -> int:
        return self.buffers * self.buffer + self.areas * self.wide + self.resident_bytes


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


def divide_budget(
    needs: Sequence[PhaseNeed], schedule: ScheduleTraits, devices: int, budget: int, *, areas: int, keep: bool
) -> MemoryDivision:
    """Divide a budget among these phases, or raise an error that names the phase that is too large.

    `areas` is how many phases may be widened at the same time. With `keep`, phases stay resident in the memory
    left by the buffers.
    """
    wide = max(need.wide for need in needs)
    everything = sum(need.resident for need in needs)
    staging = max((need.buffer for need in needs if need.wide), default=0)  # resident phases are widened from here
    if schedule.holds_all_weights or (keep and everything + staging <= budget):
        return MemoryDivision(
            buffers=1 if staging else 0,
            buffer=staging,
            areas=0,
            wide=0,
            resident=tuple(range(len(needs))),
            resident_bytes=everything,
        )
    buffer = max(need.buffer for need in needs)
    least, most = (schedule.limit_buffers(count, len(needs)) for count in schedule.count_buffers(devices))
    fitting = [n for n in range(least, most + 1) if n * buffer + areas * wide <= budget]
    if not fitting:
        raise _build_budget_error(needs, least, areas, budget)
    resident = choose_resident(needs, budget - fitting[-1] * buffer - areas * wide) if keep else ()
    streamed = [need for index, need in enumerate(needs) if index not in resident]
    buffered = [need for index, need in enumerate(needs) if index not in resident or need.wide]
    return MemoryDivision(
        buffers=schedule.limit_buffers(fitting[-1], len(streamed)),
        buffer=max(need.buffer for need in buffered),  # a resident phase that is widened is read into a buffer first
        areas=areas if wide else 0,
        wide=max(need.wide for need in streamed),
        resident=resident,
        resident_bytes=sum(needs[index].resident for index in resident),
    )


def choose_resident(needs: Sequence[PhaseNeed], free: int) -> tuple[int, ...]:
    """Choose resident phases of at most `free` bytes, evenly spread, so that streamed phases load between them."""
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


def _build_budget_error(needs: Sequence[PhaseNeed], buffers: int, areas: int, budget: int) -> TesseraError:
    index, need = max(enumerate(needs), key=lambda item: item[1].buffer * buffers + item[1].wide * areas)
    buffer, wide = max(need.buffer for need in needs), max(need.wide for need in needs)
    total = buffer * buffers + wide * areas
    parts = f"{buffers} buffer{'s' * (buffers > 1)} of {format_bytes(buffer)}"
    if wide:
        parts += f" and {format_bytes(wide * areas)} for weights widened to float32"
    remedies = [f"raise the budget to {total} bytes or more"]
    if len(need.units) > 1:
        remedies.append(f"begin phases at more of its modules: {', '.join(need.units[1:6])}")
    if buffers > 1:
        remedies.append("use schedule 'sequential', which needs one buffer")
    return TesseraError(
        f"phase {index} ({need.name}) does not fit into the budget: the phases require {parts}, "
        f"{format_bytes(total)} in total",
        got=format_bytes(budget),
        do=", or ".join(remedies),
    )
