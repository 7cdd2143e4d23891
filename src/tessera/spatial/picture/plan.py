"""The picture of a plan: every worker's tile, the halo that it receives, and the senders of the halo.

Each worker has a panel with its tile in its own colour and, around it, the halo and the padding. A received border has
the colour of its sender; padding is hatched. The tooltip of a box describes it.
"""

from __future__ import annotations

import math

from tessera.geometry import Box, HaloPlan, Interval, Move
from tessera.geometry.halo import Fill
from tessera.report.svg import build_svg, draw_rect, draw_text, get_series_colour
from tessera.spatial.picture.layout import PictureLayout, PlanPanel, arrange_panels

HEADER_HEIGHT = 62.0
FOOTER_HEIGHT = 32.0
MAX_ARROWS = 26
SMALL_BOX = 40.0  # smaller boxes are labelled with a number only
DIGIT = 6.4  # width of a digit in a box
MIN_LINE = 13.0  # height of a number in a box
MIN_STRIP = 3.0  # minimum width of a drawn strip

Place = tuple[float, float, float, float]  # left, top, width, height

HATCH = (
    '<defs><pattern id="tessera-padding" width="6" height="6" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><path d="M0 0v6" stroke="currentColor" stroke-width="1.4" stroke-opacity="0.45"/>'
    "</pattern></defs>"
)
PADDING = "url(#tessera-padding)"


def draw_plan(plan: HaloPlan, *, standalone: bool = True) -> str:
    """Return the picture of a plan as SVG; without `standalone`, the surrounding page must define the colours."""
    layout = arrange_panels(plan, HEADER_HEIGHT)
    panels = "".join(_draw_worker(plan, panel, layout) for panel in layout.panels)
    width, height = max(layout.width, 620.0), layout.height + FOOTER_HEIGHT
    body = HATCH + _draw_head(plan) + panels + _draw_arrows(plan, layout) + _draw_legend(plan, layout.height)
    return build_svg(body, width, height, describe_plan(plan), standalone=standalone)


def describe_plan(plan: HaloPlan) -> str:
    """Describe a plan in one sentence."""
    sizes = "x".join(map(str, plan.inputs.sizes[1:]))
    return f"{sizes} image over {len(plan.workers)} workers, {repr(plan.window)[7:-1]}"


def format_span(box: Box) -> str:
    """Format the rows and columns of a box.

    >>> format_span(Box.of((0, 1), (0, 4), (5, 6)))
    'rows 0:4, columns 5:6'
    """
    rows, cols = (f"{dim.start}:{dim.stop}" for dim in box.dims[-2:])
    return f"rows {rows}, columns {cols}"


def format_pixels(pixels: int) -> str:
    """Format a number of pixels.

    >>> format_pixels(1), format_pixels(2048)
    ('1 pixel', '2,048 pixels')
    """
    return f"{pixels:,} pixel{'s' if pixels != 1 else ''}"


def _draw_head(plan: HaloPlan) -> str:
    received = [sum(move.source_box.size for move in worker.receives) for worker in plan.workers]
    traffic = f"{format_pixels(sum(received))} move, at most {max(received):,} to one worker"
    title = draw_text(16, 26, describe_plan(plan), font_size=16, font_weight=650)
    return title + draw_text(16, 46, traffic, fill="var(--muted)")


def _draw_worker(plan: HaloPlan, panel: PlanPanel, layout: PictureLayout) -> str:
    worker, name, colour = plan.workers[panel.worker], f"worker {panel.worker}", get_series_colour(panel.colour)
    parts = []
    if worker.owned:
        hint = f"{name} owns {format_span(worker.owned)}: {format_pixels(worker.owned.size)}"
        parts.append(
            draw_rect(
                *panel.compute_rectangle(worker.owned),
                hint,
                fill=colour,
                fill_opacity=0.2,
                stroke=colour,
                stroke_opacity=0.7,
            )
        )
    for move in worker.sends:
        pixels = format_pixels(move.source_box.size)
        hint = f"{name} sends {format_span(move.source_box)} to worker {move.target}: {pixels}"
        look = {
            "fill": colour,
            "fill_opacity": 0.22,
            "stroke": colour,
            "stroke_opacity": 0.6,
            "stroke_dasharray": "2 2",
        }
        x, y, width, height = _widen_strip(
            panel.compute_rectangle(move.source_box), panel.compute_rectangle(worker.owned)
        )
        parts.append(draw_rect(x, y, width, height, hint, **look))
    for box in (*worker.pads, *(_get_fill_box(worker.frame, fill) for fill in worker.fills)):
        hint = f"padding of {name}, {format_span(box)}: {format_pixels(box.size)}"
        parts.append(
            draw_rect(*panel.compute_rectangle(box), hint, fill=PADDING, stroke="currentColor", stroke_opacity=0.3)
        )
    for move in worker.keeps:
        if move.source_box != move.target_box:  # circular padding copied from the worker's own tile
            hint = f"padding of {name}, its own {format_span(move.source_box)}: {format_pixels(move.source_box.size)}"
            parts.append(
                draw_rect(*panel.compute_rectangle(move.target_box), hint, fill=colour, fill_opacity=0.2, stroke=colour)
            )
    parts += [_draw_received(move, panel, layout.panels[move.source]) for move in worker.receives]
    if worker.need:
        parts.append(
            draw_rect(*panel.compute_rectangle(worker.need), fill="none", stroke="currentColor", pointer_events="none")
        )
    parts.append(_draw_number(worker.owned or worker.need, panel))
    return f'<g data-worker="{panel.worker}" tabindex="0">{"".join(parts)}</g>'


def _widen_strip(strip: Place, tile: Place) -> Place:
    """Widen a strip of a tile so that it is visible and stays within the tile."""
    width, height = max(strip[2], MIN_STRIP), max(strip[3], MIN_STRIP)
    x, y = min(strip[0], tile[0] + tile[2] - width), min(strip[1], tile[1] + tile[3] - height)
    return x, y, width, height


def _draw_received(move: Move, panel: PlanPanel, sender: PlanPanel) -> str:
    x, y, width, height = panel.compute_rectangle(move.target_box)
    pixels = format_pixels(move.source_box.size)
    hint = f"worker {panel.worker} receives {format_span(move.source_box)} from worker {move.source}: {pixels}"
    colour = get_series_colour(sender.colour)
    drawn = draw_rect(x, y, width, height, hint, fill=colour, fill_opacity=0.6, stroke=colour)
    count = f"{move.source_box.size:,}"
    length = len(count) * DIGIT + 4
    place = {"text_anchor": "middle", "font_size": 11, "pointer_events": "none"}
    middle = x + width / 2, y + height / 2
    if width >= length and height >= MIN_LINE:
        return drawn + draw_text(middle[0], middle[1] + 4, count, **place)
    if height >= length and width >= MIN_LINE:
        turned = f"rotate(-90 {middle[0]:.1f} {middle[1]:.1f})"
        return drawn + draw_text(middle[0], middle[1] + 4, count, transform=turned, **place)
    return drawn


def _get_fill_box(frame: Box, fill: Fill) -> Box:
    """Return the box of padding that a fill covers."""
    dims: list[Interval] = list(frame.dims)
    dims[fill.axis] = fill.target
    return Box(tuple(dims))


def _draw_number(box: Box, panel: PlanPanel) -> str:
    if not box:
        return draw_text(panel.left, panel.top + 14, f"{panel.worker}: nothing", fill="var(--muted)")
    x, y, width, height = panel.compute_rectangle(box)
    place = {"text_anchor": "middle", "pointer_events": "none"}
    drawn = draw_text(x + width / 2, y + height / 2 + 6, str(panel.worker), font_size=18, font_weight=700, **place)
    size = f"{len(box.dims[-2])}x{len(box.dims[-1])}"
    if height >= 110 and width >= 60:
        drawn += draw_text(x + width / 2, y + height / 2 + 23, size, font_size=11, fill="var(--muted)", **place)
    return drawn


def _draw_arrows(plan: HaloPlan, layout: PictureLayout) -> str:
    """Draw arrows from the source of each border to its target, unless there are too many."""
    moves = list(plan.moves)
    if len(moves) > MAX_ARROWS:
        return ""
    return "".join(_draw_arrow(move, layout.panels[move.source], layout.panels[move.target]) for move in moves)


def _draw_arrow(move: Move, sender: PlanPanel, receiver: PlanPanel) -> str:
    # The two arrows between neighbours are side by side; the number is between them.
    along = 0.36 if move.source < move.target else 0.64
    goal = receiver.compute_rectangle(move.target_box)
    (x0, y0), (x1, y1) = _find_anchor(sender.compute_rectangle(move.source_box), along), _find_anchor(goal, along)
    length = math.hypot(x1 - x0, y1 - y0) or 1.0
    dx, dy = (x1 - x0) / length, (y1 - y0) / length
    if max(goal[2:]) < SMALL_BOX:  # diagonal neighbours: beside the opposite arrow, and away from the numbers
        x0, y0, x1, y1 = x0 - 3 * dy, y0 + 3 * dx, x1 - 3 * dy, y1 + 3 * dx
        size = math.hypot(*goal[2:])
        x0, y0, x1, y1 = x0 + size * dx, y0 + size * dy, x1 - size / 2 * dx, y1 - size / 2 * dy
    head = [(x1, y1), *((x1 - 8 * dx + side * 3.4 * dy, y1 - 8 * dy - side * 3.4 * dx) for side in (1, -1))]
    colour = get_series_colour(sender.colour)
    return (
        f'<g pointer-events="none" data-from="{move.source}" data-to="{move.target}">'
        f'<path d="M{x0:.1f} {y0:.1f}L{x1 - 5 * dx:.1f} {y1 - 5 * dy:.1f}" stroke="{colour}" stroke-width="1.8"/>'
        f'<path d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in head)}z" fill="{colour}"/></g>'
    )


def _find_anchor(place: Place, along: float) -> tuple[float, float]:
    """Return the point at fraction `along` of a rectangle's longer side, in the middle of its shorter side."""
    x, y, width, height = place
    across, down = (0.5, along) if height > width else (along, 0.5)
    if max(width, height) < SMALL_BOX:
        across = down = 0.5
    return x + across * width, y + down * height


def _draw_legend(plan: HaloPlan, y: float) -> str:
    first = get_series_colour(0)
    items = [
        (draw_rect(0, 0, 14, 14, fill=first, fill_opacity=0.2, stroke=first, stroke_opacity=0.7), "a worker's tile"),
        (draw_rect(0, 0, 14, 14, fill=first, fill_opacity=0.42, stroke=first, stroke_dasharray="2 2"), "sent pixels"),
        (
            draw_rect(0, 0, 14, 14, fill=get_series_colour(1), fill_opacity=0.6, stroke=get_series_colour(1)),
            "received, in the sender's colour",
        ),
    ]
    if any(worker.pads or worker.fills for worker in plan.workers):
        items.append((draw_rect(0, 0, 14, 14, fill=PADDING, stroke="currentColor", stroke_opacity=0.3), "padding"))
    drawn, x = [], 16.0
    for mark, words in items:
        drawn.append(f'<g transform="translate({x:.1f} {y:.1f})">{mark}{draw_text(20, 11.5, words)}</g>')
        x += 42 + len(words) * 6.6
    return "".join(drawn)
