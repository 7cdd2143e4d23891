"""The haloed shards of a convolution as a picture: what each core has, and where the rest comes from.

On the left the image, every stick in the colour of the core that has it. Beside it a panel for each core that is shown:
the padded sticks that its output reads, padding hatched, its own in its own colour, those of others in theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tessera.coregrid.planning.plan import ConvPlan
from tessera.coregrid.planning.sticks import Haloing, Ints, Sticks
from tessera.errors import TesseraError
from tessera.report.svg import document, rect, series, text

HEAD, FOOT, GAP, LEFT = 74.0, 40.0, 28.0, 16.0
ROW_GAP = 54.0  # between rows of panels, with room for their headings
WIDEST = 260.0  # of a panel
NARROWEST = 236.0  # of one, for its heading
LARGEST_CELL = 20.0
PANELS_IN_A_ROW = 3
MOST_PANELS = 6
SEEN_CELL = 8.0  # from this size on, sticks are told apart
MOST_LINES = 160  # of the image: more of them are too thin to see
PADDING, NOBODY = -1, -2

HATCH = (
    '<defs><pattern id="tessera-halo-padding" width="5" height="5" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><path d="M0 0v5" stroke="currentColor" stroke-width="1.2" stroke-opacity="0.5"/>'
    "</pattern></defs>"
)


@dataclass(frozen=True, slots=True)
class _Run:
    """Sticks side by side on one line that come from the same core."""

    line: int
    column: int
    length: int
    owner: int


def halos_svg(plan: ConvPlan, cores: Sequence[int] | None = None, *, standalone: bool = True) -> str:
    """The picture of a plan's halos; of many cores the first ones and the last are shown, or those that are named."""
    haloing = plan.haloing
    if haloing is None:
        raise TesseraError("a matmul reads no neighbours: it has no halos to draw")
    shown = list(cores) if cores is not None else _chosen(len(haloing.ranges))
    sticks = Sticks((plan.conv.batch, plan.conv.height, plan.conv.width), plan.conv.window)
    cell = min(LARGEST_CELL, WIDEST / sticks.padded_width)
    step = max(sticks.padded_width * cell, NARROWEST) + GAP
    image, lines = _image(plan, sticks, cell)
    drawn, top, bottom = [HATCH, _head(plan), image], HEAD, HEAD + lines * cell
    for first in range(0, len(shown), PANELS_IN_A_ROW):
        tallest = 0
        for column, core in enumerate(shown[first : first + PANELS_IN_A_ROW], 1):
            panel, tall = _panel(plan, haloing, sticks, core, (LEFT + column * step, top), cell)
            drawn.append(panel)
            tallest = max(tallest, tall)
        bottom = max(bottom, top + tallest * cell)
        top += tallest * cell + ROW_GAP
    wide = LEFT + (1 + min(len(shown), PANELS_IN_A_ROW)) * step
    drawn.append(_legend(bottom + 16))
    return document("".join(drawn), max(wide, 640.0), bottom + FOOT, describe(plan), standalone=standalone)


def describe(plan: ConvPlan) -> str:
    """A plan in a sentence."""
    conv = plan.conv
    kernel, stride = (f"{a}x{b}" for a, b in (conv.kernel, conv.stride))
    return (
        f"{conv.batch} x {conv.height}x{conv.width}, {conv.in_channels} to {conv.out_channels} channels, "
        f"kernel {kernel}, stride {stride}: {plan.layout} on {plan.sharding.cores} cores"
    )


def _chosen(count: int) -> list[int]:
    if count <= MOST_PANELS:
        return list(range(count))
    return [*range(MOST_PANELS - 1), count - 1]


def _image(plan: ConvPlan, sticks: Sticks, cell: float) -> tuple[str, int]:
    """The padded images, every stick in its core's colour; how many lines of cells that is."""
    lines = min(plan.conv.batch * sticks.padded_height, MOST_LINES)
    owners = _owners(plan, sticks)[: lines * sticks.padded_width]
    drawn = [text(LEFT, HEAD - 10, "the padded image, by the core that has it", fill="var(--muted)")]
    for run in _runs(owners, 0, sticks.padded_width):
        drawn.append(_cells(run, LEFT, HEAD, cell, _what(run, -1)))
    return "".join(drawn), lines


def _panel(
    plan: ConvPlan, haloing: Haloing, sticks: Sticks, core: int, corner: tuple[float, float], cell: float
) -> tuple[str, int]:
    """The sticks that one core's output reads, at their place in the image, from the first line of them on."""
    span = haloing.ranges[core]
    first = span.start // sticks.padded_width
    last = max(first, (span.stop - 1) // sticks.padded_width)
    owners = _owners(plan, sticks)[span.slice].copy()
    if haloing.mode == "exact":
        outputs = plan.sharding.outputs(plan.conv.outputs)[core]
        owners[~sticks.touched([outputs], [span])] = NOBODY
    count = haloing.sizes[core]
    remote = sum(length for (_, to), runs in haloing.remote.items() if to == core for _, _, length in runs)
    local = sum(length for _, _, length in haloing.local[core])
    left, top = corner
    said = f"{count} sticks: {count - local - remote} padding, {local} local, {remote} remote"
    drawn = [
        text(left, top - 24, f"core {core}", font_weight=650),
        text(left, top - 10, said, fill="var(--muted)", font_size=11),
    ]
    for run in _runs(owners, span.start - first * sticks.padded_width, sticks.padded_width):
        if run.owner != NOBODY:
            drawn.append(_cells(run, left, top, cell, _what(run, core)))
    return "".join(drawn), last - first + 1


def _owners(plan: ConvPlan, sticks: Sticks) -> Ints:
    """Which core has each padded stick."""
    starts = np.array([run.start for run in plan.sharding.inputs(plan.conv.inputs)])
    found: Ints = np.where(sticks.source >= 0, np.searchsorted(starts, sticks.source, side="right") - 1, PADDING)
    return found


def _runs(owners: Ints, offset: int, width: int) -> Iterator[_Run]:
    """The runs of one owner on one line; the first stick stands so many cells after the start of the first line."""
    place = np.arange(len(owners)) + offset
    line, column = np.divmod(place, width)
    begins = np.ones(len(owners), dtype=bool)
    begins[1:] = (owners[1:] != owners[:-1]) | (line[1:] != line[:-1])
    first = np.flatnonzero(begins)
    lengths = np.diff(np.append(first, len(owners)))
    for at, length in zip(first.tolist(), lengths.tolist(), strict=True):
        yield _Run(int(line[at]), int(column[at]), length, int(owners[at]))


def _cells(run: _Run, left: float, top: float, cell: float, what: str) -> str:
    """A run as a bar; where there is room, its sticks are told apart."""
    look: dict[str, object] = {"fill": "url(#tessera-halo-padding)", "stroke": "currentColor", "stroke_opacity": 0.25}
    if run.owner >= 0:
        opacity = 0.85 if what.startswith("remote") else 0.4
        look = {"fill": series(run.owner), "fill_opacity": opacity, "stroke": series(run.owner), "stroke_opacity": 0.8}
    x, y, tall = left + run.column * cell, top + run.line * cell, cell * 0.94
    bar = rect(x, y, run.length * cell, tall, what, **look)
    if cell < SEEN_CELL or run.length == 1:
        return bar
    lines = "".join(f"M{x + stick * cell:.1f} {y:.1f}v{tall:.1f}" for stick in range(1, run.length))
    return f'{bar}<path d="{lines}" stroke="currentColor" stroke-opacity="0.25" pointer-events="none"/>'


def _what(run: _Run, core: int) -> str:
    if run.owner == PADDING:
        return f"padding: {run.length} sticks"
    if core < 0:
        return f"core {run.owner}: {run.length} sticks"
    if run.owner == core:
        return f"local: {run.length} sticks of its own"
    return f"remote: {run.length} sticks from core {run.owner}"


def _head(plan: ConvPlan) -> str:
    return text(LEFT, 24, describe(plan), font_size=15, font_weight=650)


def _legend(y: float) -> str:
    own, other = series(0), series(1)
    items = [
        (rect(0, 0, 14, 14, fill="url(#tessera-halo-padding)", stroke="currentColor", stroke_opacity=0.3), "padding"),
        (rect(0, 0, 14, 14, fill=own, fill_opacity=0.4, stroke=own), "local: the core has it"),
        (
            rect(0, 0, 14, 14, fill=other, fill_opacity=0.85, stroke=other),
            "remote: another core pushes it, in its colour",
        ),
    ]
    drawn, x = [], LEFT
    for mark, words in items:
        drawn.append(f'<g transform="translate({x:.1f} {y:.1f})">{mark}{text(20, 11.5, words)}</g>')
        x += 42 + len(words) * 6.6
    return "".join(drawn)
