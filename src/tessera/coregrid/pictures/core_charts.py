"""Charts of one core: timeline by lane, and memory. Export of timelines as a Chrome trace."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tessera.coregrid.cost.timeline import LANES, CoreTimeline, LaneSpan
from tessera.coregrid.planning.plan import MIB, ConvPlan
from tessera.report.figures import format_seconds
from tessera.report.svg import build_svg, draw_rect, draw_text, get_series_colour

TIMELINE_LEFT, TIMELINE_TOP, TIMELINE_WIDTH, LANE_HEIGHT, LANE_GAP = 92.0, 52.0, 820.0, 26.0, 8.0
MAX_DRAWN_SPANS = 2000  # with more spans, adjacent spans of a lane are joined
MEMORY_LEFT, MEMORY_TOP, MEMORY_WIDTH, MEMORY_HEIGHT, MEMORY_RIGHT = 16.0, 56.0, 180.0, 420.0, 660.0
MIN_BUFFER_HEIGHT = 3.0  # pixels
LABEL_SPACING = 17.0


def draw_timeline(timeline: CoreTimeline, *, standalone: bool = True) -> str:
    """Draw the timeline of a core as SVG: one row per lane, one bar per span."""
    whole = timeline.seconds or 1.0
    drawn = [draw_text(16, 24, "busiest core", font_size=15, font_weight=650)]
    for number, lane in enumerate(LANES):
        y = TIMELINE_TOP + number * (LANE_HEIGHT + LANE_GAP)
        drawn.append(draw_text(16, y + LANE_HEIGHT / 2 + 4, lane))
        drawn.append(draw_rect(TIMELINE_LEFT, y, TIMELINE_WIDTH, LANE_HEIGHT, fill="currentColor", fill_opacity=0.05))
        for span in _join_spans([each for each in timeline.spans if each.lane == lane], len(timeline.spans)):
            x = TIMELINE_LEFT + span.start / whole * TIMELINE_WIDTH
            wide = (span.stop - span.start) / whole * TIMELINE_WIDTH
            words = f"{span.name}: {format_seconds(span.stop - span.start)} from {format_seconds(span.start)}"
            look = {"fill": get_series_colour(number), "fill_opacity": 0.7, "stroke": get_series_colour(number)}
            drawn.append(draw_rect(x, y, max(wide, 0.4), LANE_HEIGHT, words, **look))
        share, right = f"{timeline.compute_busy_seconds(lane) / whole:.0%}", TIMELINE_LEFT + TIMELINE_WIDTH + 10
        drawn.append(draw_text(right, y + LANE_HEIGHT / 2 + 4, share, fill="var(--muted)"))
    bottom = TIMELINE_TOP + len(LANES) * (LANE_HEIGHT + LANE_GAP)
    for part in range(5):
        x, words = TIMELINE_LEFT + part / 4 * TIMELINE_WIDTH, format_seconds(whole * part / 4)
        drawn.append(draw_text(x, bottom + 12, words, fill="var(--muted)", text_anchor="middle"))
    label = f"timeline of {format_seconds(whole)}"
    return build_svg("".join(drawn), TIMELINE_LEFT + TIMELINE_WIDTH + 60, bottom + 26, label, standalone=standalone)


def _join_spans(spans: list[LaneSpan], total: int) -> list[LaneSpan]:
    """Return the spans of a lane. If the chart has more than `MAX_DRAWN_SPANS` spans, join adjacent spans."""
    if total <= MAX_DRAWN_SPANS or len(spans) < 2:
        return spans
    gap = (spans[-1].stop - spans[0].start) / MAX_DRAWN_SPANS
    joined = [spans[0]]
    for span in spans[1:]:
        last = joined[-1]
        if span.start - last.stop <= gap:
            joined[-1] = LaneSpan(span.lane, f"{last.name.partition(' …')[0]} … {span.name}", last.start, span.stop)
        else:
            joined.append(span)
    return joined


def export_trace(timelines: Sequence[CoreTimeline], name: str = "cores") -> str:
    """Return timelines as JSON in Chrome's trace format (for Perfetto), in microseconds.

    Every row of cores is a process, every lane a thread.
    """
    events: list[dict[str, object]] = []
    for row, timeline in enumerate(timelines):
        process = f"row of cores {row}" if row else f"row of cores 0: {name}"
        events.append({"ph": "M", "pid": row, "name": "process_name", "args": {"name": process}})
        for number, lane in enumerate(LANES):
            events.append({"ph": "M", "pid": row, "tid": number, "name": "thread_name", "args": {"name": lane}})
        for span in timeline.spans:
            times = {"ts": span.start * 1e6, "dur": (span.stop - span.start) * 1e6}
            events.append({"ph": "X", "pid": row, "tid": LANES.index(span.lane), "name": span.name, **times})
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"})


def draw_memory(plan: ConvPlan, *, standalone: bool = True) -> str:
    """Draw the memory of a core during a convolution as SVG: every buffer to scale, and the free or missing memory."""
    parts = plan.footprint.get_buffer_sizes()
    if not plan.footprint.input_kept:
        parts.pop("input", None)  # freed once the haloed shard is filled
    used_bytes = sum(parts.values())
    whole = max(plan.capacity, used_bytes)
    scale = MEMORY_HEIGHT / whole
    drawn, y, label = [], MEMORY_TOP, MEMORY_TOP + 10
    for number, (name, size) in enumerate(parts.items()):
        tall = max(size * scale, MIN_BUFFER_HEIGHT)
        look = {"fill": get_series_colour(number), "fill_opacity": 0.55, "stroke": get_series_colour(number)}
        words = f"{name}: {size:,} bytes"
        drawn.append(draw_rect(MEMORY_LEFT, y, MEMORY_WIDTH, tall, words, **look))
        label = max(label, y + tall / 2 + 4)
        drawn.append(draw_text(MEMORY_LEFT + MEMORY_WIDTH + 14, label, words))
        y, label = y + tall, label + LABEL_SPACING
    if used_bytes < plan.capacity:
        free = plan.capacity - used_bytes
        words, tall = f"free: {free:,} bytes", max(free * scale, 0.0)
        label_y = max(label, y + free * scale / 2 + 4)
        drawn += [
            draw_rect(MEMORY_LEFT, y, MEMORY_WIDTH, tall, words, fill="none", stroke="currentColor"),
            draw_text(MEMORY_LEFT + MEMORY_WIDTH + 14, label_y, words, fill="var(--muted)"),
        ]
    else:
        edge = MEMORY_TOP + plan.capacity * scale
        path = f"M{MEMORY_LEFT - 6:.1f} {edge:.1f}H{MEMORY_RIGHT:.1f}"
        line = f'<path d="{path}" stroke="currentColor" stroke-width="2"/>'
        caption = f"end of memory: {plan.capacity:,} bytes"
        drawn += [line, draw_text(MEMORY_RIGHT, edge - 5, caption, font_weight=650, text_anchor="end")]
    head = draw_text(MEMORY_LEFT, 22, "memory of one core", font_size=15, font_weight=650)
    caption = f"{plan.fit_summary}; {used_bytes / MIB:.2f} MiB while running"
    body = head + draw_text(MEMORY_LEFT, 42, caption, fill="var(--muted)") + "".join(drawn)
    height = max(MEMORY_TOP + MEMORY_HEIGHT, label, y) + 24
    return build_svg(body, MEMORY_RIGHT + 16, height, f"memory of a core: {plan.fit_summary}", standalone=standalone)
