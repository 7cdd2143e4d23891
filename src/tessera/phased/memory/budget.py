"""How a budget of working memory is divided: buffers that weights stream through, one to widen in, phases that stay.

Plain numbers: nothing here touches memory, so that a network that does not fit is refused before anything is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessera.errors import TesseraError
from tessera.phased.choices import HOLD_ALL
from tessera.report.figures import format_bytes

ALIGNMENT = 64
AHEAD = ("overlapped", "data-parallel")  # schedules with a stream that loads phases ahead


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What one phase takes: a buffer of `buffer` bytes for its load, `wide` bytes more where it has to be widened."""

    name: str
    units: tuple[str, ...]
    buffer: int
    wide: int

    @property
    def resident(self) -> int:
        """Bytes of the phase if it stays: in the form in which it is computed with."""
        return self.wide or self.buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """`buffers` of `buffer` bytes, `areas` of `wide` bytes to widen in; `resident` phases have memory of their own."""

    buffers: int
    buffer: int
    areas: int
    wide: int
    resident: tuple[int, ...]
    resident_bytes: int

    @property
    def nbytes(self) -> int:
        return self.buffers * self.buffer + self.areas * self.wide + self.resident_bytes


def buffers_for(schedule: str, devices: int) -> tuple[int, int]:
    """The least and the most buffers that a schedule makes use of."""
    if schedule in HOLD_ALL:
        return 0, 0
    if schedule == "sequential":
        return 1, 1
    if schedule == "phased":
        return devices, devices  # each device loads into its own and computes from it
    return 2, 3  # one is computed from while the next are loaded


def largest_phase(schedule: str, devices: int, budget: int, *, largest_unit: int, widening: float) -> int:
    """Up to how many stored bytes a phase may have; `widening` are the bytes to widen in for each of them."""
    least, most = buffers_for(schedule, devices)
    for buffers in range(most, least - 1, -1):
        limit = int(budget / (buffers + widening)) if buffers else budget
        if limit >= largest_unit:
            return limit
    # the largest unit is a phase of its own; others share one as long as they can be widened in what it leaves
    return max(0, min(largest_unit, int((budget - least * largest_unit) / widening))) if widening else largest_unit


def divide(needs: Sequence[Need], schedule: str, devices: int, budget: int, *, areas: int, keep: bool) -> Division:
    """Divide a budget for these phases, or raise an error that says which phase is too large and what to do.

    `areas` is how many phases may have to be widened at a time. With `keep`, phases stay in what the buffers leave.
    """
    wide = max(need.wide for need in needs)
    everything = sum(need.resident for need in needs)
    staging = max((need.buffer for need in needs if need.wide), default=0)  # what stays is widened from there, once
    if schedule in HOLD_ALL or (keep and everything + staging <= budget):
        return Division(
            buffers=1 if staging else 0,
            buffer=staging,
            areas=0,
            wide=0,
            resident=tuple(range(len(needs))),
            resident_bytes=everything,
        )
    buffer = max(need.buffer for need in needs)
    least, most = buffers_for(schedule, devices)
    in_turn = schedule in AHEAD  # no phase is in two buffers
    if in_turn:
        least, most = min(least, len(needs)), min(most, len(needs))
    fitting = [n for n in range(least, most + 1) if n * buffer + areas * wide <= budget]
    if not fitting:
        raise _too_large(needs, schedule, least, areas, budget)
    resident = _spread(needs, budget - fitting[-1] * buffer - areas * wide) if keep else ()
    streamed = [need for index, need in enumerate(needs) if index not in resident]
    passing = [need for index, need in enumerate(needs) if index not in resident or need.wide]
    return Division(
        buffers=min(fitting[-1], len(streamed)) if in_turn else fitting[-1],
        buffer=max(need.buffer for need in passing),  # what stays in a wider form came through a buffer as well
        areas=areas if wide else 0,
        wide=max(need.wide for need in streamed),
        resident=resident,
        resident_bytes=sum(needs[index].resident for index in resident),
    )


def _spread(needs: Sequence[Need], room: int) -> tuple[int, ...]:
    """Phases that stay within some room, spread over the network: between them there is time to load the others."""
    total, share = sum(need.resident for need in needs), room
    kept: list[int] = []
    owed = 0  # to the phases so far, in whole numbers: share/total of each
    for index, need in enumerate(needs):
        owed += share * need.resident
        if owed >= total * need.resident and need.resident <= room:
            kept.append(index)
            owed -= total * need.resident
            room -= need.resident
    return tuple(kept)


def _too_large(needs: Sequence[Need], schedule: str, buffers: int, areas: int, budget: int) -> TesseraError:
    index, need = max(enumerate(needs), key=lambda found: found[1].buffer * buffers + found[1].wide * areas)
    wide = max(one.wide for one in needs)
    total = max(one.buffer for one in needs) * buffers + wide * areas
    parts = f"{buffers} buffer{'s' * (buffers > 1)} of {format_bytes(max(one.buffer for one in needs))}"
    if wide:
        parts += f" and {format_bytes(wide * areas)} to widen weights in"
    how = [f"raise the budget to {total} bytes or more"]
    if len(need.units) > 1:
        how.append(f"begin phases at more of its modules: {', '.join(need.units[1:6])}")
    if schedule != "sequential":
        how.append("take the schedule sequential, which needs one buffer")
    return TesseraError(
        f"phase {index} ({need.name}) does not fit the budget: the phases take {parts}, {format_bytes(total)} together",
        got=format_bytes(budget),
        do=", or ".join(how),
    )
