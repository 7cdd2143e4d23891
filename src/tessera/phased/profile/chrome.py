"""Passes as a trace for Chrome (chrome://tracing) and Perfetto: devices as processes, kinds of work as threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tessera.phased.events import KINDS, Event
from tessera.phased.profile.pass_profile import PassProfile

MICRO = 1e6


def chrome_trace(profiles: Mapping[str, PassProfile]) -> dict[str, Any]:
    """Trace events of one pass of each case, all of them beginning at 0."""
    events: list[dict[str, Any]] = []
    process = 0
    for case, profile in profiles.items():
        for device in sorted({event.device for event in profile.events}):
            process += 1
            events.append(_named("process_name", process, 0, f"{case}: device {device}"))
            thread = 0
            for kind in KINDS:
                own = [e for e in profile.events if e.device == device and e.kind == kind]
                for number, lane in enumerate(_lanes(own)):
                    thread += 1
                    events.append(_named("thread_name", process, thread, f"{kind} {number + 1}" if number else kind))
                    events += [_complete(profile, event, process, thread) for event in lane]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _named(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _complete(profile: PassProfile, event: Event, process: int, thread: int) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": f"{event.kind} {event.phase}",
        "cat": event.kind,
        "ts": event.start * MICRO,
        "dur": event.seconds * MICRO,
        "pid": process,
        "tid": thread,
        "args": {"phase": event.phase, "name": profile.parts[event.phase].name, "bytes": event.bytes},
    }


def _lanes(events: list[Event]) -> list[list[Event]]:
    """Events in as few lanes as let none overlap another: a thread of a trace does one thing at a time."""
    lanes: list[list[Event]] = []
    for event in sorted(events, key=lambda e: e.start):
        free = next((lane for lane in lanes if lane[-1].stop <= event.start), None)
        if free is None:
            lanes.append([event])
        else:
            free.append(event)
    return lanes
