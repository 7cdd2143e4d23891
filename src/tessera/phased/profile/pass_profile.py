"""The profile of one pass through all phases: its events, and the values derived from them.

Hidden loading (loading that overlaps with computing), idle time, ideal time and efficiency are computed only here. A
record stores the profile of a pass as plain values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, replace
from typing import Any

from tessera.phased.events import Event
from tessera.phased.profile.spans import Span, measure_overlap, measure_spans
from tessera.results.record import Record

LOAD, COMPUTE, HAND_OVER = "load", "compute", "hand-over"
BUSY_KINDS = (COMPUTE, LOAD, HAND_OVER)  # kinds of events in which a device is busy
PROFILE_KEY = "profile"  # key of the profile in the details of a record


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseCost:
    """Cost of a phase in one pass: the bytes that are loaded, and the FLOPs of all mini-batches.

    `load` and `compute` are seconds, each measured in isolation; the ideal is computed from them.
    """

    name: str
    bytes: int
    flops: int
    load: float
    compute: float

    @property
    def ideal(self) -> float:
        """Ideal seconds of the phase: the longer of load and compute."""
        return max(self.load, self.compute)

    @property
    def bound(self) -> str:
        """Name of the longer activity: load or compute."""
        return "I/O" if self.load > self.compute else "compute"

    @property
    def flops_per_byte(self) -> float | None:
        """FLOPs for each byte loaded; None if nothing is loaded."""
        return self.flops / self.bytes if self.bytes else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTimes:
    """Seconds of loading, computing, hand-over and hidden (overlapped) loading of a phase in one pass."""

    load: float
    compute: float
    hand_over: float
    hidden: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PassProfile:
    """The events of a pass that began at 0 and took `seconds`, and the costs of its phases."""

    seconds: float
    phases: tuple[PhaseCost, ...]
    events: tuple[Event, ...]

    @classmethod
    def from_events(cls, events: Iterable[Event], phases: Iterable[PhaseCost], begin: float, end: float) -> PassProfile:
        """Build a profile from recorded events, clipped to the time from `begin` to `end`."""
        inside = [_clip_event(event, begin, end) for event in events if event.stop > begin and event.start < end]
        return cls(seconds=end - begin, phases=tuple(phases), events=tuple(inside))

    @property
    def devices(self) -> list[int]:
        """Numbers of the devices that have events, in order."""
        return sorted({event.device for event in self.events})

    def get_spans(self, kind: str, *, device: int | None = None, phase: int | None = None) -> list[Span]:
        """Return the start and end times of events of a kind, optionally of one device or one phase only."""
        return [
            (event.start, event.stop)
            for event in self.events
            if event.kind == kind and device in (None, event.device) and phase in (None, event.phase)
        ]

    def get_busy_spans(self, device: int) -> list[Span]:
        """Return the times in which a device was busy."""
        return [span for kind in BUSY_KINDS for span in self.get_spans(kind, device=device)]

    def get_idle_seconds(self, device: int) -> float:
        """Return the seconds in which a device neither loaded nor computed nor handed over."""
        return self.seconds - measure_spans(self.get_busy_spans(device))

    def get_phase_times(self, phase: int) -> PhaseTimes:
        """Return the measured times of one phase."""
        loading = self.get_spans(LOAD, phase=phase)
        return PhaseTimes(
            load=measure_spans(loading),
            compute=measure_spans(self.get_spans(COMPUTE, phase=phase)),
            hand_over=measure_spans(self.get_spans(HAND_OVER, phase=phase)),
            hidden=measure_overlap(loading, self.get_spans(COMPUTE)),
        )

    @property
    def ideal(self) -> float:
        """Ideal seconds of the pass: the sum over phases of the longer of load and compute."""
        return sum(phase.ideal for phase in self.phases)

    @property
    def efficiency(self) -> float:
        """Ideal time divided by the measured time of the pass."""
        return self.ideal / self.seconds

    @property
    def hidden(self) -> float | None:
        """Fraction of the loading time during which some device computed; None if nothing was loaded."""
        loading = self.get_spans(LOAD)
        seconds = measure_spans(loading)
        return measure_overlap(loading, self.get_spans(COMPUTE)) / seconds if seconds else None

    def to_json(self) -> dict[str, Any]:
        """Return the profile as plain values; phases and events are unnamed rows, to save space."""
        return {
            "seconds": self.seconds,
            "parts": [list(astuple(phase)) for phase in self.phases],
            "events": [list(astuple(event)) for event in self.events],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PassProfile:
        """Build a profile from the values that `to_json` returned."""
        phase, event = (tuple(row_type.__dataclass_fields__) for row_type in (PhaseCost, Event))
        return cls(
            seconds=float(data["seconds"]),
            phases=tuple(PhaseCost(**dict(zip(phase, row, strict=True))) for row in data["parts"]),
            events=tuple(Event(**dict(zip(event, row, strict=True))) for row in data["events"]),
        )


def get_profile(record: Record) -> PassProfile | None:
    """Return the profile that a record stores; None if it is missing or in an unknown format."""
    data = record.details.get(PROFILE_KEY)
    if not isinstance(data, Mapping):
        return None
    try:
        return PassProfile.from_json(data)
    except (KeyError, TypeError, ValueError):
        return None


def _clip_event(event: Event, begin: float, end: float) -> Event:
    """Return the part of an event from `begin` to `end`, in seconds after `begin`, with a proportional byte count."""
    start, stop = max(event.start, begin), min(event.stop, end)
    share = (stop - start) / event.seconds if event.seconds else 1.0
    return replace(event, start=start - begin, stop=stop - begin, bytes=round(event.bytes * share))
