"""Choice of resident phases by measured benefit: the I/O time that is not hidden by compute, per byte of memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tessera.phased.memory.budget import PhaseNeed, choose_resident

MIN_GAIN = 0.02  # of the time of a pass; a smaller gain than that over evenly spread phases is noise


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadComputeTimes:
    """Measured seconds of one phase: to load and to compute it."""

    load: float
    compute: float


def choose_by_benefit(
    needs: Sequence[PhaseNeed], times: Sequence[LoadComputeTimes], free: int, buffers: int
) -> tuple[int, ...]:
    """Choose resident phases of at most `free` bytes, with which a simulated pass takes the least time.

    Phases that are evenly spread are chosen unless others are faster.
    """
    spread = choose_resident(needs, free)
    before = simulate_pass(times, (), buffers)
    gains = [before - simulate_pass(times, (index,), buffers) for index in range(len(needs))]
    excess = [max(0.0, time.load - time.compute) for time in times]
    candidates = [_fill(needs, benefit, free) for benefit in (gains, excess)]
    best = min(candidates, key=lambda chosen: simulate_pass(times, chosen, buffers))
    limit = (1 - MIN_GAIN) * simulate_pass(times, spread, buffers)
    return best if simulate_pass(times, best, buffers) < limit else spread


def simulate_pass(times: Sequence[LoadComputeTimes], resident: Collection[int], buffers: int) -> float:
    """Return the seconds of a pass after another one, with one stream that loads at most `buffers` phases ahead.

    >>> times = [LoadComputeTimes(load=1, compute=1), LoadComputeTimes(load=5, compute=1)]
    >>> simulate_pass(times, (), 2), simulate_pass(times, (0,), 2), simulate_pass(times, (1,), 2)
    (6.0, 5.0, 2.0)
    """
    done = loaded = start = 0.0
    ends: list[float] = []  # of the streamed phases
    for turn in range(3):
        start = done if turn == 2 else start
        for index, time in enumerate(times):
            if index not in resident:
                loaded = max(loaded, ends[-buffers] if len(ends) >= buffers else 0.0) + time.load
                done = max(done, loaded)
            done += time.compute
            if index not in resident:
                ends.append(done)
    return done - start


def _fill(needs: Sequence[PhaseNeed], benefit: Sequence[float], free: int) -> tuple[int, ...]:
    """Return the phases with the largest benefit per byte that fit."""
    chosen = []
    for index in sorted(range(len(needs)), key=lambda i: -benefit[i] / max(1, needs[i].resident)):
        if needs[index].resident <= free:
            chosen.append(index)
            free -= needs[index].resident
    return tuple(sorted(chosen))
