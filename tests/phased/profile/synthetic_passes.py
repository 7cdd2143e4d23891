"""Synthetic passes: phases that load and compute, overlapped or one after the other."""

from __future__ import annotations

import random

from tessera.phased.events import Event
from tessera.phased.profile.pass_profile import PassProfile, PhaseCost


def build_overlapped(loads: list[float], computes: list[float], *, devices: int = 1, begin: float = 0.0) -> PassProfile:
    """Build a pass that loads without pauses and computes each phase as soon as it is loaded."""
    events, at, free = [], begin, begin
    for phase, (load, compute) in enumerate(zip(loads, computes, strict=True)):
        device = phase % devices
        events.append(Event(device=device, phase=phase, kind="load", start=at, stop=at + load, bytes=1000 * phase + 1))
        at += load
        start = max(at, free)
        events.append(Event(device=device, phase=phase, kind="compute", start=start, stop=start + compute))
        free = start + compute
    return PassProfile.from_events(events, build_costs(loads, computes), begin, free)


def build_sequential(loads: list[float], computes: list[float]) -> PassProfile:
    """Build a pass that loads each phase, then computes it."""
    events, at = [], 0.0
    for phase, (load, compute) in enumerate(zip(loads, computes, strict=True)):
        events.append(Event(device=0, phase=phase, kind="load", start=at, stop=at + load, bytes=100))
        events.append(Event(device=0, phase=phase, kind="compute", start=at + load, stop=at + load + compute))
        at += load + compute
    return PassProfile.from_events(events, build_costs(loads, computes), 0.0, at)


def build_costs(loads: list[float], computes: list[float]) -> list[PhaseCost]:
    return [
        PhaseCost(name=f"layers.{number}", bytes=1000, flops=10**6, load=load, compute=compute)
        for number, (load, compute) in enumerate(zip(loads, computes, strict=True))
    ]


def draw_times(count: int = 4) -> tuple[list[float], list[float]]:
    """Return random times of loading and computing."""
    return [random.uniform(1, 9) for _ in range(count)], [random.uniform(1, 9) for _ in range(count)]
