"""A scaling as a picture: lines over the number of ranks, both axes logarithmic where the values ask for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tessera.report.figures import format_bytes, format_seconds
from tessera.report.svg import document, rect, series, text
from tessera.spatial.scaling.points import Point, efficiencies
from tessera.spatial.scaling.table import Measured, Scaling

PANEL = (560.0, 330.0)
MARGIN = {"left": 78.0, "right": 116.0, "top": 40.0, "bottom": 40.0}
LEGEND_STEP = 17.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Values over ranks; `dots` alone for what was measured, `dashed` for what something is compared with."""

    name: str
    points: Sequence[tuple[int, float]]
    colour: int
    dashed: bool = False
    dots: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Some lines over the same axes."""

    title: str
    lines: Sequence[Line]
    label: Callable[[float], str]
    base: float | None = 10.0  # of the logarithmic axis; None for a plain one


def scaling_svg(scaling: Scaling, *, standalone: bool = True) -> str:
    """Time of a step and its parts, efficiency and memory, of strong and weak scaling; measurements beside them."""
    strong, weak = scaling.strong, scaling.weak
    panels = [
        Panel(
            title="Strong scaling: a step",
            lines=[*_times(strong), _ideal(strong), *_measured(scaling.measured)],
            label=format_seconds,
        ),
        Panel(title="Weak scaling: a step", lines=_times(weak), label=format_seconds),
        Panel(
            title="Efficiency",
            lines=[
                Line(name=name, points=list(zip(_ranks(points), efficiencies(points), strict=True)), colour=colour)
                for name, points, colour in (("strong", strong, 0), ("weak", weak, 2))
            ],
            label=lambda share: f"{share:.0%}",
            base=None,
        ),
        Panel(
            title="Memory of a rank",
            lines=[
                Line(name="strong", points=[(p.ranks, p.memory) for p in strong], colour=0),
                Line(name="weak", points=[(p.ranks, p.memory) for p in weak], colour=2),
                Line(name="a rank has", points=[(p.ranks, p.room) for p in strong], colour=5, dashed=True),
            ],
            label=format_bytes,
            base=4.0,
        ),
    ]
    width, height = 2 * PANEL[0], 2 * PANEL[1]
    drawn = [_draw(panel, (n % 2) * PANEL[0], (n // 2) * PANEL[1]) for n, panel in enumerate(panels)]
    return document("".join(drawn), width, height, "predicted scaling over ranks", standalone=standalone)


def _ranks(points: Sequence[Point]) -> list[int]:
    return [point.ranks for point in points]


def _times(points: Sequence[Point]) -> list[Line]:
    parts: tuple[tuple[str, int, Callable[[Point], float]], ...] = (
        ("step", 0, lambda p: p.seconds),
        ("compute", 2, lambda p: p.compute),
        ("exchange", 1, lambda p: p.exchange),
        ("not hidden", 4, lambda p: p.exchange - p.hidden),
        ("statistics", 3, lambda p: p.statistics),
        ("weights", 5, lambda p: p.weights),
    )
    return [Line(name=n, colour=c, points=[(p.ranks, value(p)) for p in points]) for n, c, value in parts]


def _ideal(points: Sequence[Point]) -> Line:
    first = points[0]
    values = [(p.ranks, first.seconds * first.ranks / p.ranks) for p in points]
    return Line(name="ideal", points=values, colour=0, dashed=True)


def _measured(measured: Sequence[Measured]) -> list[Line]:
    """What was run here, usually a smaller image, and the prediction of just that."""
    if not measured:
        return []
    size = measured[0].predicted.plane[0]
    predicted = [(m.predicted.ranks, m.predicted.seconds) for m in measured]
    return [
        Line(name=f"{size} here", points=predicted, colour=5, dashed=True),
        Line(name="measured", points=[(m.predicted.ranks, m.seconds) for m in measured], colour=5, dots=True),
    ]


def _draw(panel: Panel, left: float, top: float) -> str:
    shown = [(x, y) for line in panel.lines for x, y in line.points if y > 0]
    width = PANEL[0] - MARGIN["left"] - MARGIN["right"]
    height = PANEL[1] - MARGIN["top"] - MARGIN["bottom"]
    x0, y0 = left + MARGIN["left"], top + MARGIN["top"]
    least, most = min(x for x, _ in shown), max(x for x, _ in shown)
    ticks = _powers([y for _, y in shown], panel.base) if panel.base else _fifths([y for _, y in shown])
    low, high = ticks[0], ticks[-1]

    def across(ranks: float) -> float:
        return x0 + width * (math.log2(ranks / least) / math.log2(most / least) if most > least else 0.5)

    def up(value: float) -> float:
        share = math.log(value / low) / math.log(high / low) if panel.base else (value - low) / (high - low)
        return y0 + height * (1 - share)

    parts = [text(x0, top + 22, panel.title, font_size=14, font_weight=600)]
    for tick in ticks:
        y = up(tick)
        parts.append(f'<path d="M{x0:.1f} {y:.1f}h{width:.1f}" stroke="currentColor" stroke-opacity="0.15"/>')
        parts.append(text(x0 - 8, y + 4, panel.label(tick), text_anchor="end", fill="var(--muted)", font_size=11))
    for ranks in _some(sorted({x for x, _ in shown})):
        place = {"text_anchor": "middle", "fill": "var(--muted)", "font_size": 11}
        parts.append(text(across(ranks), y0 + height + 18, f"{ranks:,}", **place))
    parts.append(text(x0 + width, y0 + height + 34, "ranks", text_anchor="end", fill="var(--muted)", font_size=11))
    for number, line in reversed(list(enumerate(panel.lines))):  # the first, which matters most, on top
        places = [(across(x), up(y), x, y) for x, y in line.points if y > 0 and y >= low]
        parts.append(_line(line, places, panel.label))
        parts.append(_legend(line, x0 + width + 12, y0 + 8 + number * LEGEND_STEP))
    return f"<g>{''.join(parts)}</g>"


def _line(line: Line, places: Sequence[tuple[float, float, int, float]], label: Callable[[float], str]) -> str:
    """A line through places, each with its number of ranks and its value."""
    colour, drawn = series(line.colour), ""
    if not line.dots and len(places) > 1:
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y, _, _ in places)
        dash = ' stroke-dasharray="5 4"' if line.dashed else ""
        drawn = f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>'
    size = 5.0 if line.dots else 2.5
    for x, y, ranks, value in places if line.dots or not line.dashed else ():
        hint = f"{line.name}, {ranks:,} ranks: {label(value)}"
        drawn += rect(x - size, y - size, 2 * size, 2 * size, hint, fill=colour, rx=size if not line.dots else 1)
    return drawn


def _legend(line: Line, x: float, y: float) -> str:
    colour = series(line.colour)
    if line.dots:
        mark = rect(x + 6, y - 5, 10, 10, fill=colour, rx=1)
    else:
        dash = ' stroke-dasharray="5 4"' if line.dashed else ""
        mark = f'<path d="M{x:.1f} {y:.1f}h22" stroke="{colour}" stroke-width="2"{dash}/>'
    return mark + text(x + 28, y + 4, line.name, font_size=11)


def _powers(values: Sequence[float], base: float) -> list[float]:
    """Powers of a base around some values, at least two and at most ten: what is smaller is of no account.

    >>> _powers([0.02, 3.0], 10.0)
    [0.01, 0.1, 1.0, 10.0]
    """
    last = math.ceil(math.log(max(values), base))
    first = max(math.floor(math.log(min(values), base)), last - 9)
    return [base**n for n in range(first, max(last, first + 1) + 1)]


def _fifths(values: Sequence[float]) -> list[float]:
    most = max(1.0, math.ceil(max(values) * 5) / 5)
    return [n / 5 for n in range(round(most * 5) + 1)]


def _some(ranks: Sequence[int]) -> Sequence[int]:
    """Those that fit below a panel."""
    return ranks[:: -(-len(ranks) // 8)]
