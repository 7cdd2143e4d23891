"""Small bar charts of findings: one bar per value, its label above it, its text beside it, and its interval."""

from __future__ import annotations

from tessera.report.blocks import Picture, Statement
from tessera.report.findings import Bar, Finding
from tessera.report.svg import build_svg, draw_rect, draw_text, get_series_colour

# Sizes in pixels.
WIDTH, BAR_AREA_WIDTH, BAR_HEIGHT, ROW_HEIGHT = 320, 215, 10, 36
MIN_BAR_WIDTH = 2


def make_statement(finding: Finding, level: str) -> Statement:
    """Return a finding as a statement of the page, with its chart; `level` is the title of its feature."""
    picture = draw_bars(finding) if finding.bars else None
    return Statement(text=finding.text, command=finding.command, picture=picture, label=level)


def draw_bars(finding: Finding) -> Picture:
    """Draw the bars of a finding to a common scale from zero."""
    largest = max(max(bar.value, bar.high or 0.0) for bar in finding.bars)
    scale = BAR_AREA_WIDTH / largest
    rows = [_draw_bar(bar, number, scale) for number, bar in enumerate(finding.bars)]
    values = ", ".join(f"{bar.label} {bar.text}" for bar in finding.bars)
    svg = build_svg("".join(rows), WIDTH, ROW_HEIGHT * len(rows), values, standalone=False)
    return Picture(svg, values)


def _draw_bar(bar: Bar, number: int, scale: float) -> str:
    top = number * ROW_HEIGHT
    middle = top + 18 + BAR_HEIGHT / 2
    width = max(MIN_BAR_WIDTH, bar.value * scale)
    parts = [
        draw_text(0, top + 13, bar.label, fill="var(--muted)"),
        draw_rect(0, top + 18, width, BAR_HEIGHT, f"{bar.label}: {bar.text}", rx=2, fill=get_series_colour(number)),
    ]
    end = width
    if bar.low is not None and bar.high is not None:
        end = max(width, bar.high * scale)
        parts.append(draw_rect(bar.low * scale, middle - 0.75, max(1, (bar.high - bar.low) * scale), 1.5))
        parts += [draw_rect(x * scale - 0.75, middle - 4, 1.5, 8) for x in (bar.low, bar.high)]
    parts.append(draw_text(end + 6, middle + 4, bar.text))
    return "".join(parts)
