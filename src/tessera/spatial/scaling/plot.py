"""The plot of a scaling study: lines over the number of ranks, on logarithmic or linear axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tessera.report.figures import format_bytes, format_seconds
from tessera.report.svg import build_svg, draw_rect, draw_text, get_series_colour
from tessera.spatial.scaling.prediction import ScalingPoint, compute_efficiencies
from tessera.spatial.scaling.table import MeasuredStep, ScalingResult

PANEL = (560.0, 330.0)
MARGIN = {"left": 78.0, "right": 116.0, "top": 40.0, "bottom": 40.0}
LEGEND_STEP = 17.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotLine:
    """A line of a plot: points of (ranks, value). `dots` draws points without a line, for measurements."""

    name: str
    points: Sequence[tuple[int, float]]
    colour: int
    dashed: bool = False
    dots: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotPanel:
    """A panel of the plot: lines with common axes."""

    title: str
    lines: Sequence[PlotLine]
    label: Callable[[float], str]
    base: float | None = 10.0  # base of the logarithmic axis; None for a linear axis


def draw_scaling(scaling: ScalingResult, *, standalone: bool = True) -> str:
    """Return the plot of a study as SVG: time, efficiency and memory of strong and weak scaling, and measured times."""
    strong, weak = scaling.strong, scaling.weak
    panels = [
        PlotPanel(
            title="Strong scaling: a step",
            lines=[*_make_time_lines(strong), _make_ideal_line(strong), *_make_measured_lines(scaling.measured)],
            label=format_seconds,
        ),
        PlotPanel(title="Weak scaling: a step", lines=_make_time_lines(weak), label=format_seconds),
        PlotPanel(
            title="Efficiency",
            lines=[
                PlotLine(
                    name=name,
                    points=list(zip(_list_ranks(points), compute_efficiencies(points), strict=True)),
                    colour=colour,
                )
                for name, points, colour in (("strong", strong, 0), ("weak", weak, 2))
            ],
            label=lambda share: f"{share:.0%}",
            base=None,
        ),
        PlotPanel(
            title="Memory of a rank",
            lines=[
                PlotLine(name="strong", points=[(p.ranks, p.memory) for p in strong], colour=0),
                PlotLine(name="weak", points=[(p.ranks, p.memory) for p in weak], colour=2),
                PlotLine(
                    name="a rank has", points=[(p.ranks, p.available_memory) for p in strong], colour=5, dashed=True
                ),
            ],
            label=format_bytes,
            base=4.0,
        ),
    ]
    width, height = 2 * PANEL[0], 2 * PANEL[1]
    drawn = [_draw_panel(panel, (n % 2) * PANEL[0], (n // 2) * PANEL[1]) for n, panel in enumerate(panels)]
    return build_svg("".join(drawn), width, height, "predicted scaling over ranks", standalone=standalone)


def _list_ranks(points: Sequence[ScalingPoint]) -> list[int]:
    return [point.ranks for point in points]


def _make_time_lines(points: Sequence[ScalingPoint]) -> list[PlotLine]:
    parts: tuple[tuple[str, int, Callable[[ScalingPoint], float]], ...] = (
        ("step", 0, lambda p: p.seconds),
        ("compute", 2, lambda p: p.times.compute),
        ("exchange", 1, lambda p: p.times.exchange),
        ("overheads", 4, lambda p: p.times.launches + p.times.messages),
        ("statistics", 3, lambda p: p.times.statistics),
        ("gradients", 5, lambda p: p.times.gradients),
    )
    return [PlotLine(name=n, colour=c, points=[(p.ranks, value(p)) for p in points]) for n, c, value in parts]


def _make_ideal_line(points: Sequence[ScalingPoint]) -> PlotLine:
    first = points[0]
    values = [(p.ranks, first.seconds * first.ranks / p.ranks) for p in points]
    return PlotLine(name="ideal", points=values, colour=0, dashed=True)


def _make_measured_lines(measured: Sequence[MeasuredStep]) -> list[PlotLine]:
    """Return two lines: the measured times, usually of a smaller image, and their predictions."""
    if not measured:
        return []
    size = measured[0].predicted.image[0]
    predicted = [(m.predicted.ranks, m.predicted.seconds) for m in measured]
    return [
        PlotLine(name=f"{size} here", points=predicted, colour=5, dashed=True),
        PlotLine(name="measured", points=[(m.predicted.ranks, m.seconds) for m in measured], colour=5, dots=True),
    ]


def _draw_panel(panel: PlotPanel, left: float, top: float) -> str:
    shown = [(x, y) for line in panel.lines for x, y in line.points if y > 0]
    width = PANEL[0] - MARGIN["left"] - MARGIN["right"]
    height = PANEL[1] - MARGIN["top"] - MARGIN["bottom"]
    x0, y0 = left + MARGIN["left"], top + MARGIN["top"]
    least, most = min(x for x, _ in shown), max(x for x, _ in shown)
    ticks = _find_powers([y for _, y in shown], panel.base) if panel.base else _find_fifths([y for _, y in shown])
    low, high = ticks[0], ticks[-1]

    def compute_x(ranks: float) -> float:
        return x0 + width * (math.log2(ranks / least) / math.log2(most / least) if most > least else 0.5)

    def compute_y(value: float) -> float:
        share = math.log(value / low) / math.log(high / low) if panel.base else (value - low) / (high - low)
        return y0 + height * (1 - share)

    parts = [draw_text(x0, top + 22, panel.title, font_size=14, font_weight=600)]
    for tick in ticks:
        y = compute_y(tick)
        parts.append(f'<path d="M{x0:.1f} {y:.1f}h{width:.1f}" stroke="currentColor" stroke-opacity="0.15"/>')
        parts.append(draw_text(x0 - 8, y + 4, panel.label(tick), text_anchor="end", fill="var(--muted)", font_size=11))
    for ranks in _select_labels(sorted({x for x, _ in shown})):
        place = {"text_anchor": "middle", "fill": "var(--muted)", "font_size": 11}
        parts.append(draw_text(compute_x(ranks), y0 + height + 18, f"{ranks:,}", **place))
    parts.append(draw_text(x0 + width, y0 + height + 34, "ranks", text_anchor="end", fill="var(--muted)", font_size=11))
    for number, line in reversed(list(enumerate(panel.lines))):  # the first line is on top
        places = [(compute_x(x), compute_y(y), x, y) for x, y in line.points if y > 0 and y >= low]
        parts.append(_draw_line(line, places, panel.label))
        parts.append(_draw_legend(line, x0 + width + 12, y0 + 8 + number * LEGEND_STEP))
    return f"<g>{''.join(parts)}</g>"


def _draw_line(line: PlotLine, places: Sequence[tuple[float, float, int, float]], label: Callable[[float], str]) -> str:
    """Draw a line through `places`: (x, y, ranks, value) of each point."""
    colour, drawn = get_series_colour(line.colour), ""
    if not line.dots and len(places) > 1:
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y, _, _ in places)
        dash = ' stroke-dasharray="5 4"' if line.dashed else ""
        drawn = f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>'
    size = 5.0 if line.dots else 2.5
    for x, y, ranks, value in places if line.dots or not line.dashed else ():
        hint = f"{line.name}, {ranks:,} ranks: {label(value)}"
        drawn += draw_rect(x - size, y - size, 2 * size, 2 * size, hint, fill=colour, rx=size if not line.dots else 1)
    return drawn


def _draw_legend(line: PlotLine, x: float, y: float) -> str:
    colour = get_series_colour(line.colour)
    if line.dots:
        mark = draw_rect(x + 6, y - 5, 10, 10, fill=colour, rx=1)
    else:
        dash = ' stroke-dasharray="5 4"' if line.dashed else ""
        mark = f'<path d="M{x:.1f} {y:.1f}h22" stroke="{colour}" stroke-width="2"{dash}/>'
    return mark + draw_text(x + 28, y + 4, line.name, font_size=11)


def _find_powers(values: Sequence[float], base: float) -> list[float]:
    """Return two to ten powers of a base that span the values. If more are needed, the lowest powers are omitted.

    >>> _find_powers([0.02, 3.0], 10.0)
    [0.01, 0.1, 1.0, 10.0]
    """
    last = math.ceil(math.log(max(values), base))
    first = max(math.floor(math.log(min(values), base)), last - 9)
    return [base**n for n in range(first, max(last, first + 1) + 1)]


def _find_fifths(values: Sequence[float]) -> list[float]:
    most = max(1.0, math.ceil(max(values) * 5) / 5)
    return [n / 5 for n in range(round(most * 5) + 1)]


def _select_labels(ranks: Sequence[int]) -> Sequence[int]:
    """Return the numbers of ranks to label on the axis, so that the labels do not overlap."""
    return ranks[:: -(-len(ranks) // 8)]
