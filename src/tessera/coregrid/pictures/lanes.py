"""A core's timeline as a picture, one line for each lane; and all of them as a trace that Perfetto and Chrome open."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tessera.coregrid.cost.timeline import LANES, Span, Timeline
from tessera.report.figures import format_seconds
from tessera.report.svg import document, rect, series, text

LEFT, TOP, WIDE, TALL, GAP = 92.0, 52.0, 820.0, 26.0, 8.0
MOST_SPANS = 2000  # beyond it, neighbours of a lane are drawn as one


def timeline_svg(timeline: Timeline, title: str = "", *, standalone: bool = True) -> str:
    """The lanes of the busiest core, from left to right in time."""
    whole = timeline.seconds or 1.0
    drawn = [text(16, 24, title or "the busiest core", font_size=15, font_weight=650)]
    busy = {lane: timeline.busy(lane) for lane in LANES}
    for number, lane in enumerate(LANES):
        y = TOP + number * (TALL + GAP)
        drawn.append(text(16, y + TALL / 2 + 4, lane))
        drawn.append(rect(LEFT, y, WIDE, TALL, fill="currentColor", fill_opacity=0.05))
        for span in _joined([one for one in timeline.spans if one.lane == lane], len(timeline.spans)):
            x, wide = LEFT + span.start / whole * WIDE, (span.stop - span.start) / whole * WIDE
            what = f"{span.name}: {format_seconds(span.stop - span.start)} from {format_seconds(span.start)}"
            colour = series(number)
            drawn.append(rect(x, y, max(wide, 0.4), TALL, what, fill=colour, fill_opacity=0.7, stroke=colour))
        share = f"{busy[lane] / whole:.0%}"
        drawn.append(text(LEFT + WIDE + 10, y + TALL / 2 + 4, share, fill="var(--muted)"))
    bottom = TOP + len(LANES) * (TALL + GAP)
    for part in range(5):
        x = LEFT + part / 4 * WIDE
        drawn.append(text(x, bottom + 12, format_seconds(whole * part / 4), fill="var(--muted)", text_anchor="middle"))
    label = f"timeline of {format_seconds(whole)}"
    return document("".join(drawn), LEFT + WIDE + 60, bottom + 26, label, standalone=standalone)


def _joined(spans: list[Span], total: int) -> list[Span]:
    """A lane's spans; of very many, those that touch as one."""
    if total <= MOST_SPANS or len(spans) < 2:
        return spans
    gap = (spans[-1].stop - spans[0].start) / MOST_SPANS
    found = [spans[0]]
    for span in spans[1:]:
        last = found[-1]
        if span.start - last.stop <= gap:
            found[-1] = Span(span.lane, f"{last.name.partition(' …')[0]} … {span.name}", last.start, span.stop)
        else:
            found.append(span)
    return found


def trace(timelines: Sequence[Timeline], name: str = "cores") -> str:
    """Timelines in the trace format of Chrome, which Perfetto opens, in microseconds.

    Every row of cores is a process, every lane a thread of it.
    """
    events: list[dict[str, object]] = []
    for row, timeline in enumerate(timelines):
        who = f"row of cores {row}" if row else f"row of cores 0: {name}"
        events.append({"ph": "M", "pid": row, "name": "process_name", "args": {"name": who}})
        for number, lane in enumerate(LANES):
            events.append({"ph": "M", "pid": row, "tid": number, "name": "thread_name", "args": {"name": lane}})
        for span in timeline.spans:
            events.append(
                {
                    "ph": "X",
                    "pid": row,
                    "tid": LANES.index(span.lane),
                    "name": span.name,
                    "ts": span.start * 1e6,
                    "dur": (span.stop - span.start) * 1e6,
                }
            )
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"})
