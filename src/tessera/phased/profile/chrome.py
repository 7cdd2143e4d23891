"""Chrome and Perfetto traces of passes: a trace process for each device, a trace thread for each kind of event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tessera.phased.events import EVENT_KINDS, Event
from tessera.phased.profile.pass_profile import PassProfile

MICROSECONDS_PER_SECOND = 1e6


def build_chrome_trace(profiles: Mapping[str, PassProfile]) -> dict[str, Any]:
    """Return the trace events of one pass of each case; every pass begins at 0."""
    events: list[dict[str, Any]] = []
    process = 0
    for case, profile in profiles.items():
        for device in sorted({event.device for event in profile.events}):
            process += 1
            events.append(_build_name_event("process_name", process, 0, f"{case}: device {device}"))
            thread = 0
            for kind in EVENT_KINDS:
                lane_events = [e for e in profile.events if e.device == device and e.kind == kind]
                for number, lane in enumerate(_split_into_lanes(lane_events)):
                    thread += 1
                    events.append(
                        _build_name_event("thread_name", process, thread, f"{kind} {number + 1}" if number else kind)
                    )
                    events += [_build_complete_event(profile, event, process, thread) for event in lane]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _build_name_event(event: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": event, "pid": process, "tid": thread, "args": {"name": name}}


def _build_complete_event(profile: PassProfile, event: Event, process: int, thread: int) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": f"{event.kind} {event.phase}",
        "cat": event.kind,
        "ts": event.start * MICROSECONDS_PER_SECOND,
        "dur": event.seconds * MICROSECONDS_PER_SECOND,
        "pid": process,
        "tid": thread,
        "args": {"phase": event.phase, "name": profile.phases[event.phase].name, "bytes": event.bytes},
    }


def _split_into_lanes(events: list[Event]) -> list[list[Event]]:
    """Split events into the fewest lanes without overlaps, because events of one trace thread must not overlap."""
    lanes: list[list[Event]] = []
    for event in sorted(events, key=lambda e: e.start):
        free = next((lane for lane in lanes if lane[-1].stop <= event.start), None)
        if free is None:
            lanes.append([event])
        else:
            free.append(event)
    return lanes
