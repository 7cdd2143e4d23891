"""Measure the noise of this machine, and advise how to reduce it."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tessera.affinity import get_affinity
from tessera.measure.clock import read_kernel_counters, read_steal_seconds
from tessera.measure.statistics import summarize


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseReport:
    """Variation of the time of a fixed computation that was repeated for some seconds."""

    seconds: float
    pieces: int
    median: float
    spread: float  # (p75 - p25) / median of the times
    tail: float  # p99 / median - 1
    drift: float  # median of the last third over the median of the first third, - 1
    hidden: float  # share of the wall time during which the process did not run
    switches_per_s: float
    steal: float  # steal time as a share of the wall time
    load: float  # 1-minute load average per core


def measure_noise(seconds: float = 3.0) -> NoiseReport:
    """Repeat a fixed computation for some seconds and measure the variation of its time."""
    block = bytes(64 * 1024)
    times: list[int] = []
    counters, steal = read_kernel_counters(), read_steal_seconds()
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
    return NoiseReport(
        seconds=wall / 1e9,
        pieces=len(times),
        median=whole.median / 1e9,
        spread=(whole.p75 - whole.p25) / whole.median,
        tail=whole.p99 / whole.median - 1,
        drift=last.median / first.median - 1,
        hidden=max(0.0, 1 - (time.process_time_ns() - cpu) / wall),
        switches_per_s=(read_kernel_counters().switches - counters.switches) / (wall / 1e9),
        steal=(read_steal_seconds() - steal) / (wall / 1e9) / len(get_affinity()),
        load=os.getloadavg()[0] / len(get_affinity()),
    )


# Smallest change that a machine must be able to show to be fit for measurements.
MAX_DETECTABLE_CHANGE = 0.10
MIN_DETECTABLE_CHANGE = 0.01


def judge_noise(noise: NoiseReport) -> tuple[bool, str]:
    """Return whether a machine is fit for measurements, and the verdict as one line.

    Changes smaller than the interquartile range and the drift together cannot be told from noise.
    """
    smallest = max(MIN_DETECTABLE_CHANGE, noise.spread + abs(noise.drift))
    if smallest <= MAX_DETECTABLE_CHANGE:
        return True, f"fit for measurements: changes of {smallest:.0%} and more can be told from noise"
    return False, f"not fit for changes below {smallest:.0%}: use `tessera ab`, which interleaves"


def list_noise_advice(noise: NoiseReport, environment: Mapping[str, Any]) -> list[str]:
    """Return one line of advice per source of noise on this machine; empty if there is none."""
    advice = []
    if noise.load > 0.5:
        advice.append(
            f"the load is {noise.load:.1f} per core: other work is running; stop it, or measure with more --launches"
        )
    if noise.steal > 0.01:
        advice.append(
            f"the hypervisor takes {noise.steal:.0%} of the time: use CPU time, more --launches, or a dedicated host"
        )
    if noise.hidden > 0.02:
        advice.append(f"a busy process did not run for {noise.hidden:.0%} of the time: pin it, or lower the load")
    if noise.spread > 0.05:
        advice.append(
            f"the interquartile range is {noise.spread:.0%} of the median: changes under about {noise.spread:.0%} "
            "require `tessera ab`, which interleaves"
        )
    if abs(noise.drift) > 0.03:
        why = (
            "other work starts and stops"
            if noise.hidden > 0.02
            else "the CPU frequency changes; wait until it is stable"
        )
        advice.append(f"the speed drifted by {noise.drift:+.0%} within seconds: {why}")
    if noise.tail > 0.5:
        advice.append(f"one repetition in a hundred takes {1 + noise.tail:.1f}x the median: use medians, not means")
    if environment.get("governor") not in ("performance", "unknown"):
        advice.append(f"the frequency governor is {environment['governor']!r}: set it to 'performance'")
    threads, cores = int(environment.get("threads") or 1), int(environment.get("pinned_to") or 1)
    if threads > cores:
        advice.append(f"{threads} threads on {cores} cores: set OMP_NUM_THREADS={cores} or pass --threads {cores}")
    return advice
