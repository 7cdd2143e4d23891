"""SVG drawing of a pass: a lane for each device and kind of event, idle time tinted, the ideal time marked."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tessera.phased.events import Event
from tessera.phased.profile.pass_profile import COMPUTE, HAND_OVER, LOAD, PassProfile
from tessera.phased.profile.spans import find_gaps
from tessera.report.figures import format_bytes, format_percent, format_seconds
from tessera.report.svg import build_svg, draw_rect, draw_text

# Sizes in pixels.
WIDTH, LEFT_MARGIN, RIGHT_MARGIN = 1000.0, 150.0, 30.0
HEADER_HEIGHT, LANE_HEIGHT, DEVICE_GAP, FOOTER_HEIGHT = 46.0, 24.0, 16.0, 34.0
DIGIT_WIDTH = 9.0
KIND_COLOURS = {COMPUTE: "var(--series-1)", LOAD: "var(--series-2)", HAND_OVER: "var(--series-3)"}
IDLE_COLOUR = "var(--series-6)"
MAX_TICKS = 8


def draw_pass(profile: PassProfile, *, standalone: bool = True) -> str:
    """Return a pass drawn as SVG; a standalone drawing includes its colour definitions."""
    lanes = {d: [kind for kind in KIND_COLOURS if profile.get_spans(kind, device=d)] for d in profile.devices}
    height = HEADER_HEIGHT + sum(len(kinds) * LANE_HEIGHT + DEVICE_GAP for kinds in lanes.values()) + FOOTER_HEIGHT
    longest = max(profile.seconds, profile.ideal)
    scale = (WIDTH - LEFT_MARGIN - RIGHT_MARGIN) / longest
    drawn = [*_draw_legend(profile), *_draw_axis(longest, scale, height)]
    top = HEADER_HEIGHT
    for device, kinds in lanes.items():
        drawn += _draw_device(profile, device, kinds, top, scale)
        top += len(kinds) * LANE_HEIGHT + DEVICE_GAP
    drawn += _draw_ideal(profile, scale, height)
    return build_svg("".join(drawn), WIDTH, height, describe_pass(profile), standalone=standalone)


def describe_pass(profile: PassProfile) -> str:
    """Describe a pass in one line."""
    words = [f"{len(profile.phases)} phases in {format_seconds(profile.seconds)}"]
    words.append(f"ideal {format_seconds(profile.ideal)}, efficiency {format_percent(profile.efficiency)}")
    if profile.hidden is not None:
        words.append(f"{format_percent(profile.hidden)} of the loading hidden")
    return "; ".join(words)


def describe_event(profile: PassProfile, event: Event) -> str:
    """Describe an event in one line, for its tooltip."""
    words = f"{event.kind} of phase {event.phase} ({profile.phases[event.phase].name}): {format_seconds(event.seconds)}"
    if event.bytes and event.seconds:
        words += f", {format_bytes(event.bytes)} at {event.bytes / event.seconds / 1e9:.2f} GB/s"
    return f"{words}, from {format_seconds(event.start)}"


def _draw_device(profile: PassProfile, device: int, kinds: list[str], top: float, scale: float) -> Iterator[str]:
    high = len(kinds) * LANE_HEIGHT
    yield draw_text(0, top + 16, f"device {device}", font_weight=600)
    yield draw_rect(LEFT_MARGIN, top, profile.seconds * scale, high, fill="currentColor", opacity=0.05)
    for start, end in find_gaps(profile.get_busy_spans(device), 0.0, profile.seconds):
        tooltip = f"device {device} idle for {format_seconds(end - start)}"
        yield draw_rect(
            LEFT_MARGIN + start * scale,
            top,
            (end - start) * scale,
            high,
            tooltip,
            fill=IDLE_COLOUR,
            opacity=0.2,
            class_="idle",
        )
    for row, kind in enumerate(kinds):
        y = top + row * LANE_HEIGHT
        yield draw_text(LEFT_MARGIN - 8, y + 16, kind, text_anchor="end", fill="var(--muted)")
        for event in profile.events:
            if event.device == device and event.kind == kind:
                yield from _draw_event(profile, event, y, scale)


def _draw_event(profile: PassProfile, event: Event, y: float, scale: float) -> Iterator[str]:
    x, width = LEFT_MARGIN + event.start * scale, max(event.seconds * scale, 0.6)
    shade = 1.0 if event.phase % 2 == 0 else 0.72  # consecutive phases have different shades
    tooltip = describe_event(profile, event)
    yield draw_rect(
        x, y + 2, width, LANE_HEIGHT - 4, tooltip, fill=KIND_COLOURS[event.kind], opacity=shade, rx=2, class_=event.kind
    )
    label = str(event.phase)
    if width > DIGIT_WIDTH * (len(label) + 1):
        yield draw_text(
            x + width / 2, y + 16, label, text_anchor="middle", fill="#fff", pointer_events="none", font_size=11
        )


def _draw_legend(profile: PassProfile) -> Iterator[str]:
    x = LEFT_MARGIN
    shown = [(kind, colour, 1.0) for kind, colour in KIND_COLOURS.items() if profile.get_spans(kind)]
    for word, colour, opacity in [*shown, ("idle", IDLE_COLOUR, 0.3)]:
        yield draw_rect(x, 8, 12, 12, fill=colour, opacity=opacity, rx=2)
        yield draw_text(x + 18, 18, word, fill="var(--muted)")
        x += 40 + 7 * len(word)


def _draw_axis(longest: float, scale: float, height: float) -> Iterator[str]:
    step = round_up_step(longest / MAX_TICKS)
    bottom = height - FOOTER_HEIGHT + 2
    for number in range(math.floor(longest / step + 1e-9) + 1):
        x = LEFT_MARGIN + number * step * scale
        yield draw_rect(x, HEADER_HEIGHT - 6, 0.6, bottom - HEADER_HEIGHT + 6, fill="currentColor", opacity=0.18)
        yield draw_text(x, bottom + 16, format_seconds(number * step), text_anchor="middle", fill="var(--muted)")


def _draw_ideal(profile: PassProfile, scale: float, height: float) -> Iterator[str]:
    x = LEFT_MARGIN + profile.ideal * scale
    tooltip = f"ideal: {format_seconds(profile.ideal)}"
    yield draw_rect(
        x - 1,
        HEADER_HEIGHT - 14,
        2,
        height - FOOTER_HEIGHT - HEADER_HEIGHT + 14,
        tooltip,
        fill="currentColor",
        class_="ideal",
    )
    yield draw_text(x - 6, HEADER_HEIGHT - 8, "ideal", text_anchor="end", font_weight=600)


def round_up_step(least: float) -> float:
    """Round up to 1, 2 or 5 times a power of ten, for the ticks of an axis.

    >>> [round_up_step(x) for x in (0.9, 1.1, 0.021, 30)]
    [1.0, 2.0, 0.05, 50.0]
    """
    power = 10.0 ** math.floor(math.log10(least))
    return next(round(m * power, 12) for m in (1, 2, 5, 10) if m * power >= least * (1 - 1e-9))
