"""One pass through all phases as it went: who loaded, computed and handed over what, and when.

Everything that is said about a pass (how much of its loading was hidden, how near it came to the ideal) is reckoned
here from its events, and nowhere else. A record carries the profile of a pass as plain values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, replace
from typing import Any

from tessera.phased.events import Event
from tessera.phased.profile.spans import Span, length, shared

LOAD, COMPUTE, HAND_OVER = "load", "compute", "hand-over"
WORK = (COMPUTE, LOAD, HAND_OVER)  # whatever else a device does, it does not work


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A phase on paper: its name, the bytes that a pass loads for it, the FLOPs of all mini-batches of a pass.

    `load` and `compute` are the seconds that each takes by itself, with nothing beside it: the ideal is made of them.
    """

    name: str
    bytes: int
    flops: int
    load: float
    compute: float

    @property
    def ideal(self) -> float:
        """Seconds when the shorter of both is hidden behind the longer."""
        return max(self.load, self.compute)

    @property
    def bound(self) -> str:
        """What decides about the ideal."""
        return "I/O" if self.load > self.compute else "compute"

    @property
    def flops_per_byte(self) -> float | None:
        """FLOPs that each byte loaded has to pay for; None where nothing is loaded."""
        return self.flops / self.bytes if self.bytes else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseFigures:
    """A phase in one pass: seconds of its loading, computing and handing over, and how much loading was hidden."""

    load: float
    compute: float
    hand_over: float
    hidden: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PassProfile:
    """The events of a pass that began at 0 and took `seconds`, and the parts that it went through."""

    seconds: float
    parts: tuple[Part, ...]
    events: tuple[Event, ...]

    @classmethod
    def of(cls, events: Iterable[Event], parts: Iterable[Part], begin: float, end: float) -> PassProfile:
        """From events as they were recorded; what of them lies outside of the pass belongs to its neighbours."""
        inside = [_clipped(event, begin, end) for event in events if event.stop > begin and event.start < end]
        return cls(seconds=end - begin, parts=tuple(parts), events=tuple(inside))

    @property
    def devices(self) -> list[int]:
        """The devices that did something, in order."""
        return sorted({event.device for event in self.events})

    def spans(self, kind: str, *, device: int | None = None, phase: int | None = None) -> list[Span]:
        """When something of a kind went on: on one device or on any, for one phase or for any."""
        return [
            (event.start, event.stop)
            for event in self.events
            if event.kind == kind and device in (None, event.device) and phase in (None, event.phase)
        ]

    def busy(self, device: int) -> list[Span]:
        """When a device worked."""
        return [span for kind in WORK for span in self.spans(kind, device=device)]

    def idle(self, device: int) -> float:
        """Seconds in which a device neither loaded nor computed nor handed over."""
        return self.seconds - length(self.busy(device))

    def figures(self, phase: int) -> PhaseFigures:
        """What happened to one phase."""
        loading = self.spans(LOAD, phase=phase)
        return PhaseFigures(
            load=length(loading),
            compute=length(self.spans(COMPUTE, phase=phase)),
            hand_over=length(self.spans(HAND_OVER, phase=phase)),
            hidden=shared(loading, self.spans(COMPUTE)),
        )

    @property
    def ideal(self) -> float:
        """Seconds if in every phase the shorter of loading and computing were hidden behind the longer."""
        return sum(part.ideal for part in self.parts)

    @property
    def efficiency(self) -> float:
        """The ideal over what the pass took."""
        return self.ideal / self.seconds

    @property
    def hidden(self) -> float | None:
        """The share of the loading that went on while something computed; None where nothing was loaded."""
        loading = self.spans(LOAD)
        return shared(loading, self.spans(COMPUTE)) / length(loading) if length(loading) else None

    def to_json(self) -> dict[str, Any]:
        """Plain values; a part and an event are rows, because there are many."""
        return {
            "seconds": self.seconds,
            "parts": [list(astuple(part)) for part in self.parts],
            "events": [list(astuple(event)) for event in self.events],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PassProfile:
        """Read back what `to_json` gave."""
        part, event = (tuple(kind.__dataclass_fields__) for kind in (Part, Event))
        return cls(
            seconds=float(data["seconds"]),
            parts=tuple(Part(**dict(zip(part, row, strict=True))) for row in data["parts"]),
            events=tuple(Event(**dict(zip(event, row, strict=True))) for row in data["events"]),
        )


def _clipped(event: Event, begin: float, end: float) -> Event:
    """The part of an event between two moments, in seconds after the first, with its share of the bytes."""
    start, stop = max(event.start, begin), min(event.stop, end)
    share = (stop - start) / event.seconds if event.seconds else 1.0
    return replace(event, start=start - begin, stop=stop - begin, bytes=round(event.bytes * share))
