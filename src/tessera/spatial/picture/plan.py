"""A plan as a picture: every worker's tile, the borders that it receives, and who sends them.

Each worker has a panel: its tile in its own colour, around it what its output reads besides. A border has the colour
of the worker that sends it, and padding, which nobody sends, is hatched. Pointing at a box says what it is.
"""

from __future__ import annotations

import math

from tessera.geometry import Box, HaloPlan, Interval, Move
from tessera.geometry.halo import Fill
from tessera.report.svg import document, rect, series, text
from tessera.spatial.picture.layout import Layout, Panel, lay_out

HEAD = 62.0
FOOT = 32.0
MOST_ARROWS = 26
SMALL = 40.0  # boxes below it have room for a number alone
DIGIT = 6.4  # the width of a digit of the small numbers
LEAST_LINE = 13.0  # the height that they need
LEAST_STRIP = 3.0  # of a tile, however few pixels that is

Place = tuple[float, float, float, float]  # left, top, width, height

HATCH = (
    '<defs><pattern id="tessera-padding" width="6" height="6" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><path d="M0 0v6" stroke="currentColor" stroke-width="1.4" stroke-opacity="0.45"/>'
    "</pattern></defs>"
)
PADDING = "url(#tessera-padding)"


def plan_svg(plan: HaloPlan, *, standalone: bool = True) -> str:
    """The picture as SVG; one that does not stand alone takes the colours of the page around it."""
    layout = lay_out(plan, HEAD)
    panels = "".join(_worker(plan, panel, layout) for panel in layout.panels)
    width, height = max(layout.width, 620.0), layout.height + FOOT
    body = HATCH + _head(plan) + panels + _arrows(plan, layout) + _legend(plan, layout.height)
    return document(body, width, height, describe(plan), standalone=standalone)


def describe(plan: HaloPlan) -> str:
    """The plan in a sentence."""
    sizes = "x".join(map(str, plan.inputs.sizes[1:]))
    return f"{sizes} image over {len(plan.workers)} workers, {repr(plan.window)[7:-1]}"


def span(box: Box) -> str:
    """The pixels of a box in words.

    >>> span(Box.of((0, 1), (0, 4), (5, 6)))
    'rows 0:4, columns 5:6'
    """
    rows, cols = (f"{dim.start}:{dim.stop}" for dim in box.dims[-2:])
    return f"rows {rows}, columns {cols}"


def counted(pixels: int) -> str:
    """
    >>> counted(1), counted(2048)
    ('1 pixel', '2,048 pixels')
    """
    return f"{pixels:,} pixel{'s' if pixels != 1 else ''}"


def _head(plan: HaloPlan) -> str:
    received = [sum(move.taken.size for move in worker.receives) for worker in plan.workers]
    said = f"{counted(sum(received))} change hands, at most {max(received):,} to one worker"
    return text(16, 26, describe(plan), font_size=16, font_weight=650) + text(16, 46, said, fill="var(--muted)")


def _worker(plan: HaloPlan, panel: Panel, layout: Layout) -> str:
    mine, name, own = plan.workers[panel.worker], f"worker {panel.worker}", series(panel.colour)
    parts = []
    if mine.owned:
        what = f"{name} has {span(mine.owned)}: {counted(mine.owned.size)}"
        parts.append(rect(*panel.place(mine.owned), what, fill=own, fill_opacity=0.2, stroke=own, stroke_opacity=0.7))
    for move in mine.sends:
        what = f"{name} sends {span(move.taken)} to worker {move.target}: {counted(move.taken.size)}"
        look = {"fill": own, "fill_opacity": 0.22, "stroke": own, "stroke_opacity": 0.6, "stroke_dasharray": "2 2"}
        x, y, width, height = _visible(panel.place(move.taken), panel.place(mine.owned))
        parts.append(rect(x, y, width, height, what, **look))
    for box in (*mine.pads, *(_filled(mine.frame, fill) for fill in mine.fills)):
        what = f"padding of {name}, {span(box)}: {counted(box.size)}"
        parts.append(rect(*panel.place(box), what, fill=PADDING, stroke="currentColor", stroke_opacity=0.3))
    for move in mine.keeps:
        if move.taken != move.placed:  # circular padding that comes from the worker's own tile
            what = f"padding of {name}, its own {span(move.taken)}: {counted(move.taken.size)}"
            parts.append(rect(*panel.place(move.placed), what, fill=own, fill_opacity=0.2, stroke=own))
    parts += [_received(move, panel, layout.panels[move.source]) for move in mine.receives]
    if mine.need:
        parts.append(rect(*panel.place(mine.need), fill="none", stroke="currentColor", pointer_events="none"))
    parts.append(_number(mine.owned or mine.need, panel))
    return f'<g data-worker="{panel.worker}" tabindex="0">{"".join(parts)}</g>'


def _visible(strip: Place, tile: Place) -> Place:
    """A strip of a tile, made wide enough to see without leaving the tile."""
    width, height = max(strip[2], LEAST_STRIP), max(strip[3], LEAST_STRIP)
    x, y = min(strip[0], tile[0] + tile[2] - width), min(strip[1], tile[1] + tile[3] - height)
    return x, y, width, height


def _received(move: Move, panel: Panel, sender: Panel) -> str:
    x, y, width, height = panel.place(move.placed)
    what = f"worker {panel.worker} receives {span(move.taken)} from worker {move.source}: {counted(move.taken.size)}"
    colour = series(sender.colour)
    drawn = rect(x, y, width, height, what, fill=colour, fill_opacity=0.6, stroke=colour)
    count = f"{move.taken.size:,}"
    long = len(count) * DIGIT + 4
    place = {"text_anchor": "middle", "font_size": 11, "pointer_events": "none"}
    middle = x + width / 2, y + height / 2
    if width >= long and height >= LEAST_LINE:
        return drawn + text(middle[0], middle[1] + 4, count, **place)
    if height >= long and width >= LEAST_LINE:
        turned = f"rotate(-90 {middle[0]:.1f} {middle[1]:.1f})"
        return drawn + text(middle[0], middle[1] + 4, count, transform=turned, **place)
    return drawn


def _filled(frame: Box, fill: Fill) -> Box:
    """The padding that repeats the frame along one dim, as a box."""
    dims: list[Interval] = list(frame.dims)
    dims[fill.axis] = fill.placed
    return Box(tuple(dims))


def _number(box: Box, panel: Panel) -> str:
    if not box:
        return text(panel.left, panel.top + 14, f"{panel.worker}: nothing", fill="var(--muted)")
    x, y, width, height = panel.place(box)
    place = {"text_anchor": "middle", "pointer_events": "none"}
    drawn = text(x + width / 2, y + height / 2 + 6, str(panel.worker), font_size=18, font_weight=700, **place)
    size = f"{len(box.dims[-2])}x{len(box.dims[-1])}"
    if height >= 110 and width >= 60:
        drawn += text(x + width / 2, y + height / 2 + 23, size, font_size=11, fill="var(--muted)", **place)
    return drawn


def _arrows(plan: HaloPlan, layout: Layout) -> str:
    """From where a border lies to where it goes, unless there are so many that they hide everything."""
    moves = list(plan.moves)
    if len(moves) > MOST_ARROWS:
        return ""
    return "".join(_arrow(move, layout.panels[move.source], layout.panels[move.target]) for move in moves)


def _arrow(move: Move, sender: Panel, receiver: Panel) -> str:
    # The two directions between neighbours go side by side, and leave the middle to the number.
    along = 0.36 if move.source < move.target else 0.64
    goal = receiver.place(move.placed)
    (x0, y0), (x1, y1) = _anchor(sender.place(move.taken), along), _anchor(goal, along)
    length = math.hypot(x1 - x0, y1 - y0) or 1.0
    dx, dy = (x1 - x0) / length, (y1 - y0) / length
    if max(goal[2:]) < SMALL:  # between corners: beside its opposite, and only where there are no numbers
        x0, y0, x1, y1 = x0 - 3 * dy, y0 + 3 * dx, x1 - 3 * dy, y1 + 3 * dx
        size = math.hypot(*goal[2:])
        x0, y0, x1, y1 = x0 + size * dx, y0 + size * dy, x1 - size / 2 * dx, y1 - size / 2 * dy
    head = [(x1, y1), *((x1 - 8 * dx + side * 3.4 * dy, y1 - 8 * dy - side * 3.4 * dx) for side in (1, -1))]
    colour = series(sender.colour)
    return (
        f'<g pointer-events="none" data-from="{move.source}" data-to="{move.target}">'
        f'<path d="M{x0:.1f} {y0:.1f}L{x1 - 5 * dx:.1f} {y1 - 5 * dy:.1f}" stroke="{colour}" stroke-width="1.8"/>'
        f'<path d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in head)}z" fill="{colour}"/></g>'
    )


def _anchor(place: Place, along: float) -> tuple[float, float]:
    """A point in the middle of the shorter side, so far along the longer one."""
    x, y, width, height = place
    across, down = (0.5, along) if height > width else (along, 0.5)
    if max(width, height) < SMALL:
        across = down = 0.5
    return x + across * width, y + down * height


def _legend(plan: HaloPlan, y: float) -> str:
    first = series(0)
    items = [
        (rect(0, 0, 14, 14, fill=first, fill_opacity=0.2, stroke=first, stroke_opacity=0.7), "a worker's tile"),
        (rect(0, 0, 14, 14, fill=first, fill_opacity=0.42, stroke=first, stroke_dasharray="2 2"), "what it sends"),
        (rect(0, 0, 14, 14, fill=series(1), fill_opacity=0.6, stroke=series(1)), "received, coloured as its sender"),
    ]
    if any(worker.pads or worker.fills for worker in plan.workers):
        items.append((rect(0, 0, 14, 14, fill=PADDING, stroke="currentColor", stroke_opacity=0.3), "padding"))
    drawn, x = [], 16.0
    for mark, words in items:
        drawn.append(f'<g transform="translate({x:.1f} {y:.1f})">{mark}{text(20, 11.5, words)}</g>')
        x += 42 + len(words) * 6.6
    return "".join(drawn)
