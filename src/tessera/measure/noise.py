"""How noisy this machine is, and what to do about it."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tessera.measure.clock import read_counters, read_steal
from tessera.measure.statistics import summarize


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """What happened to a fixed piece of work that was repeated for some seconds."""

    seconds: float
    pieces: int
    median: float
    spread: float  # (p75 - p25) / median
    tail: float  # p99 / median - 1
    drift: float  # median of the last third over that of the first, - 1
    hidden: float  # share of wall time during which the work did not run on a core
    switches_per_s: float
    steal: float  # share of the time that the hypervisor took
    load: float  # 1-minute load average over the cores


def measure_noise(seconds: float = 3.0) -> Noise:
    """Repeat a fixed piece of pure computation and watch how its time varies."""
    block = bytes(64 * 1024)
    times: list[int] = []
    counters, steal = read_counters(), read_steal()
    cpu, start = time.process_time_ns(), time.perf_counter_ns()
    end = start + int(seconds * 1e9)
    now = start
    while now < end:
        before = now
        hashlib.blake2b(block).digest()
        now = time.perf_counter_ns()
        times.append(now - before)
    wall = now - start
    third = max(1, len(times) // 3)
    whole, first, last = summarize(times), summarize(times[:third]), summarize(times[-third:])
    return Noise(
        seconds=wall / 1e9,
        pieces=len(times),
        median=whole.median / 1e9,
        spread=(whole.p75 - whole.p25) / whole.median,
        tail=whole.p99 / whole.median - 1,
        drift=last.median / first.median - 1,
        hidden=max(0.0, 1 - (time.process_time_ns() - cpu) / wall),
        switches_per_s=(read_counters().switches - counters.switches) / (wall / 1e9),
        steal=(read_steal() - steal) / (wall / 1e9) / len(os.sched_getaffinity(0)),
        load=os.getloadavg()[0] / len(os.sched_getaffinity(0)),
    )


def advice(noise: Noise, seen: Mapping[str, Any]) -> list[str]:
    """What is wrong with this machine for measuring, and what to do, one line each; empty when it is quiet."""
    found = []
    if noise.load > 0.5:
        found.append(
            f"the load is {noise.load:.1f} per core: other work is running; stop it, or measure with more --launches"
        )
    if noise.steal > 0.01:
        found.append(
            f"the hypervisor takes {noise.steal:.0%} of the time: use CPU time, more --launches, or a dedicated host"
        )
    if noise.hidden > 0.02:
        found.append(f"a busy process was kept off its core for {noise.hidden:.0%} of the time: pin it, lower the load")
    if noise.spread > 0.05:
        found.append(
            f"half of all repetitions spread over {noise.spread:.0%}: changes under about {noise.spread:.0%} "
            "need `tessera ab`, which interleaves"
        )
    if abs(noise.drift) > 0.03:
        why = "other work comes and goes" if noise.hidden > 0.02 else "the frequency changes; let it settle"
        found.append(f"the speed drifted by {noise.drift:+.0%} within seconds: {why}")
    if noise.tail > 0.5:
        found.append(f"one repetition in a hundred takes {1 + noise.tail:.1f}x: medians hold, means do not")
    if seen.get("governor") not in ("performance", "unknown"):
        found.append(f"the frequency governor is {seen['governor']!r}: set it to 'performance'")
    threads, cores = int(seen.get("threads") or 1), int(seen.get("pinned_to") or 1)
    if threads > cores:
        found.append(f"{threads} threads on {cores} cores: set OMP_NUM_THREADS={cores} or pass --threads {cores}")
    return found
