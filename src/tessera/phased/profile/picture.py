"""A pass as a drawing: a lane for each device and kind of work, idle time tinted, the ideal as a mark."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tessera.phased.events import Event
from tessera.phased.profile.pass_profile import COMPUTE, HAND_OVER, LOAD, PassProfile
from tessera.phased.profile.spans import gaps
from tessera.report.figures import format_bytes, format_percent, format_seconds
from tessera.report.svg import document, rect, text

WIDTH, LEFT, RIGHT = 1000.0, 150.0, 30.0
HEAD, LANE, BETWEEN, FOOT = 46.0, 24.0, 16.0, 34.0
DIGIT = 9.0  # pixels that a digit of a phase's number takes
COLOURS = {COMPUTE: "var(--series-1)", LOAD: "var(--series-2)", HAND_OVER: "var(--series-3)"}
IDLE = "var(--series-6)"
TICKS = 8


def pass_svg(profile: PassProfile, *, standalone: bool = True) -> str:
    """The drawing; one that stands alone brings its colours along."""
    lanes = {d: [kind for kind in COLOURS if profile.spans(kind, device=d)] for d in profile.devices}
    height = HEAD + sum(len(kinds) * LANE + BETWEEN for kinds in lanes.values()) + FOOT
    longest = max(profile.seconds, profile.ideal)
    scale = (WIDTH - LEFT - RIGHT) / longest
    drawn = [*_legend(profile), *_axis(longest, scale, height)]
    top = HEAD
    for device, kinds in lanes.items():
        drawn += _device(profile, device, kinds, top, scale)
        top += len(kinds) * LANE + BETWEEN
    drawn += _ideal(profile, scale, height)
    return document("".join(drawn), WIDTH, height, describe(profile), standalone=standalone)


def describe(profile: PassProfile) -> str:
    """The pass in one line."""
    words = [f"{len(profile.parts)} phases in {format_seconds(profile.seconds)}"]
    words.append(f"ideal {format_seconds(profile.ideal)}, efficiency {format_percent(profile.efficiency)}")
    if profile.hidden is not None:
        words.append(f"{format_percent(profile.hidden)} of the loading hidden")
    return "; ".join(words)


def in_words(profile: PassProfile, event: Event) -> str:
    """An event in one line, as it shows on pointing at it."""
    words = f"{event.kind} of phase {event.phase} ({profile.parts[event.phase].name}): {format_seconds(event.seconds)}"
    if event.bytes and event.seconds:
        words += f", {format_bytes(event.bytes)} at {event.bytes / event.seconds / 1e9:.2f} GB/s"
    return f"{words}, from {format_seconds(event.start)}"


def _device(profile: PassProfile, device: int, kinds: list[str], top: float, scale: float) -> Iterator[str]:
    high = len(kinds) * LANE
    yield text(0, top + 16, f"device {device}", font_weight=600)
    yield rect(LEFT, top, profile.seconds * scale, high, fill="currentColor", opacity=0.05)
    for start, end in gaps(profile.busy(device), 0.0, profile.seconds):
        said = f"device {device} idle for {format_seconds(end - start)}"
        yield rect(LEFT + start * scale, top, (end - start) * scale, high, said, fill=IDLE, opacity=0.2, class_="idle")
    for row, kind in enumerate(kinds):
        y = top + row * LANE
        yield text(LEFT - 8, y + 16, kind, text_anchor="end", fill="var(--muted)")
        for event in profile.events:
            if event.device == device and event.kind == kind:
                yield from _event(profile, event, y, scale)


def _event(profile: PassProfile, event: Event, y: float, scale: float) -> Iterator[str]:
    x, width = LEFT + event.start * scale, max(event.seconds * scale, 0.6)
    shade = 1.0 if event.phase % 2 == 0 else 0.72  # neighbouring phases are told apart
    said = in_words(profile, event)
    yield rect(x, y + 2, width, LANE - 4, said, fill=COLOURS[event.kind], opacity=shade, rx=2, class_=event.kind)
    label = str(event.phase)
    if width > DIGIT * (len(label) + 1):
        yield text(x + width / 2, y + 16, label, text_anchor="middle", fill="#fff", pointer_events="none", font_size=11)


def _legend(profile: PassProfile) -> Iterator[str]:
    x = LEFT
    seen = [(kind, colour, 1.0) for kind, colour in COLOURS.items() if profile.spans(kind)]
    for word, colour, opacity in [*seen, ("idle", IDLE, 0.3)]:
        yield rect(x, 8, 12, 12, fill=colour, opacity=opacity, rx=2)
        yield text(x + 18, 18, word, fill="var(--muted)")
        x += 40 + 7 * len(word)


def _axis(longest: float, scale: float, height: float) -> Iterator[str]:
    step = nice_step(longest / TICKS)
    bottom = height - FOOT + 2
    for number in range(math.floor(longest / step + 1e-9) + 1):
        x = LEFT + number * step * scale
        yield rect(x, HEAD - 6, 0.6, bottom - HEAD + 6, fill="currentColor", opacity=0.18)
        yield text(x, bottom + 16, format_seconds(number * step), text_anchor="middle", fill="var(--muted)")


def _ideal(profile: PassProfile, scale: float, height: float) -> Iterator[str]:
    x = LEFT + profile.ideal * scale
    said = f"ideal: {format_seconds(profile.ideal)}"
    yield rect(x - 1, HEAD - 14, 2, height - FOOT - HEAD + 14, said, fill="currentColor", class_="ideal")
    yield text(x - 6, HEAD - 8, "ideal", text_anchor="end", font_weight=600)


def nice_step(least: float) -> float:
    """The next of 1, 2 or 5 times a power of ten: what an axis is divided by.

    >>> [nice_step(x) for x in (0.9, 1.1, 0.021, 30)]
    [1.0, 2.0, 0.05, 50.0]
    """
    power = 10.0 ** math.floor(math.log10(least))
    return next(round(m * power, 12) for m in (1, 2, 5, 10) if m * power >= least * (1 - 1e-9))
