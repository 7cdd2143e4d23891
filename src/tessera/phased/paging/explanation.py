"""The text of `PhasedModel.explain`: a table of the phases with bytes, memory and times."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.phased.events import Event
from tessera.phased.paging.pager import PagerCounts
from tessera.phased.paging.residents import LoadComputeTimes
from tessera.phased.plan import Phase
from tessera.report.figures import format_bytes, format_seconds


class MeasuredTimes:
    """Load, compute and wait times of every phase in seconds, from the last pass that used the phase."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[int, str], float] = {}

    def add(self, events: Sequence[Event]) -> None:
        """Replace the times of the phases in these events."""
        sums: dict[tuple[int, str], float] = {}
        for event in events:
            sums[event.phase, event.kind] = sums.get((event.phase, event.kind), 0.0) + event.seconds
        for phase in {event.phase for event in events}:
            for kind in ("load", "compute", "wait"):
                self._seconds[phase, kind] = sums.get((phase, kind), 0.0)

    def build_phase_times(self, phases: Sequence[Phase]) -> list[LoadComputeTimes] | None:
        """Return the times of all phases; None if no load was measured.

        The load time of a phase that was not loaded follows from its bytes and the measured rate.
        """
        loads = [self.get(phase.index, "load") for phase in phases]
        nbytes = sum(phase.bytes for phase, load in zip(phases, loads, strict=True) if load)
        if not nbytes:
            return None
        rate = sum(loads) / nbytes
        return [
            LoadComputeTimes(load=load or phase.bytes * rate, compute=self.get(phase.index, "compute"))
            for phase, load in zip(phases, loads, strict=True)
        ]

    def get(self, phase: int, kind: str) -> float:
        """Return the seconds of one kind of event of a phase."""
        return self._seconds.get((phase, kind), 0.0)


def format_explanation(
    phases: Sequence[Phase], times: MeasuredTimes, counts: PagerCounts, working_bytes: int, budget: int
) -> str:
    """Return a table of the phases, and advice on how to reduce the time that the network waits for weights."""
    rows: list[tuple[str, ...]] = [("phase", "modules", "weights", "memory", "load", "compute", "wait")]
    for phase in phases:
        seconds = [times.get(phase.index, kind) for kind in ("load", "compute", "wait")]
        rows.append(
            (
                str(phase.index),
                phase.name,
                format_bytes(phase.bytes),
                "resident" if phase.resident else "streamed",
                *(format_seconds(value) if value else "" for value in seconds),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    load, compute, wait = (sum(times.get(p.index, kind) for p in phases) for kind in ("load", "compute", "wait"))
    lines.append(
        f"{format_bytes(working_bytes)} of working memory (budget {format_bytes(budget)}); {counts.passes} passes, "
        f"{counts.loads} loads, {counts.misses} on demand"
    )
    if counts.passes and load:
        hidden = max(0.0, 1 - wait / load)
        lines.append(f"the last pass loaded for {format_seconds(load)}, {hidden:.0%} of it while it computed")
        if wait > 0.1 * (compute + wait):
            lines.append("bound by I/O: a larger budget, several inputs at once (run), or 16-bit weights would help")
        else:
            lines.append("bound by compute: a smaller budget costs little")
    return "\n".join(lines)
