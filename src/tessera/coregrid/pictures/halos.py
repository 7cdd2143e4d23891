"""Drawing of shards and halos: the sticks that every core holds, and the cores that send the halo sticks.

On the left is the padded image; a stick has the colour of the core that holds it. To the right is one panel per core
with the padded sticks that the core's output reads. Padding is hatched, sticks have the colour of the core that holds
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tessera.coregrid.planning.halo import HaloRuns, IntArray, PaddedSticks
from tessera.coregrid.planning.plan import ConvPlan, describe_plan
from tessera.errors import TesseraError
from tessera.report.svg import build_svg, draw_rect, draw_text, get_series_colour

TOP_MARGIN, BOTTOM_MARGIN, PANEL_GAP, LEFT_MARGIN = 74.0, 40.0, 28.0, 16.0
PANEL_ROW_GAP = 54.0  # vertical distance between rows of panels, including headings
MAX_PANEL_WIDTH = 260.0
MIN_PANEL_WIDTH = 236.0  # width of a panel heading
MAX_CELL_SIZE = 20.0
PANELS_PER_ROW = 3
MAX_PANELS = 6
MIN_OUTLINED_CELL_SIZE = 8.0  # minimum cell size for outlines around single sticks
MAX_IMAGE_LINES = 160  # maximum number of image lines that are drawn
PADDING_STICK, UNREAD_STICK = -1, -2

PADDING_FILL = "url(#tessera-halo-padding)"
HATCH_PATTERN = (
    '<defs><pattern id="tessera-halo-padding" width="5" height="5" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><path d="M0 0v5" stroke="currentColor" stroke-width="1.2" stroke-opacity="0.5"/>'
    "</pattern></defs>"
)


@dataclass(frozen=True, slots=True)
class _OwnerRun:
    """Adjacent sticks of one image line that are held by the same core."""

    line: int
    column: int
    length: int
    owner: int


def draw_halos(plan: ConvPlan, cores: Sequence[int] | None = None, *, standalone: bool = True) -> str:
    """Draw the halos of a plan as SVG, one panel for each of `cores` (default: the first cores and the last core)."""
    halo_runs = plan.halo_runs
    if halo_runs is None:
        what = "a convolution without halo (matmul) or in slices has no halos to draw"
        raise TesseraError(what, do="draw the memory or the timeline")
    shown = list(cores) if cores is not None else _choose_shown_cores(len(halo_runs.ranges))
    sticks = PaddedSticks((plan.conv.batch, plan.conv.height, plan.conv.width), plan.conv.window)
    cell = min(MAX_CELL_SIZE, MAX_PANEL_WIDTH / sticks.padded_width)
    step = max(sticks.padded_width * cell, MIN_PANEL_WIDTH) + PANEL_GAP
    image, lines = _draw_image(plan, sticks, cell)
    title = draw_text(LEFT_MARGIN, 24, describe_plan(plan), font_size=15, font_weight=650)
    drawn, top, bottom = [HATCH_PATTERN, title, image], TOP_MARGIN, TOP_MARGIN + lines * cell
    for first in range(0, len(shown), PANELS_PER_ROW):
        tallest = 0
        for column, core in enumerate(shown[first : first + PANELS_PER_ROW], 1):
            panel, tall = _draw_panel(plan, halo_runs, sticks, core, (LEFT_MARGIN + column * step, top), cell)
            drawn.append(panel)
            tallest = max(tallest, tall)
        bottom = max(bottom, top + tallest * cell)
        top += tallest * cell + PANEL_ROW_GAP
    wide = LEFT_MARGIN + (1 + min(len(shown), PANELS_PER_ROW)) * step
    drawn.append(_draw_legend(bottom + 16))
    return build_svg(
        "".join(drawn), max(wide, 640.0), bottom + BOTTOM_MARGIN, describe_plan(plan), standalone=standalone
    )


def _choose_shown_cores(count: int) -> list[int]:
    if count <= MAX_PANELS:
        return list(range(count))
    return [*range(MAX_PANELS - 1), count - 1]


def _draw_image(plan: ConvPlan, sticks: PaddedSticks, cell: float) -> tuple[str, int]:
    """Draw the padded images, every stick in the colour of the core that holds it.

    Return the SVG and the number of pixel rows drawn.
    """
    lines = min(plan.conv.batch * sticks.padded_height, MAX_IMAGE_LINES)
    owners = _find_owners(plan, sticks)[: lines * sticks.padded_width]
    drawn = [draw_text(LEFT_MARGIN, TOP_MARGIN - 10, "padded image, coloured by core", fill="var(--muted)")]
    for run in _iter_runs(owners, 0, sticks.padded_width):
        drawn.append(_draw_run(run, LEFT_MARGIN, TOP_MARGIN, cell, _describe_run(run, -1)))
    return "".join(drawn), lines


def _draw_panel(
    plan: ConvPlan, halo_runs: HaloRuns, sticks: PaddedSticks, core: int, corner: tuple[float, float], cell: float
) -> tuple[str, int]:
    """Draw the padded sticks that the output of one core reads; return the SVG and the number of lines."""
    span = halo_runs.ranges[core]
    first = span.start // sticks.padded_width
    last = max(first, (span.stop - 1) // sticks.padded_width)
    owners = _find_owners(plan, sticks)[span.slice].copy()
    if halo_runs.mode == "exact":
        outputs = plan.sharding.split_outputs(plan.conv.output_sticks)[core]
        owners[~sticks.find_read_sticks([outputs], [span])] = UNREAD_STICK
    count = halo_runs.sizes[core]
    remote = sum(length for (_, to), runs in halo_runs.remote.items() if to == core for _, _, length in runs)
    local = sum(length for _, _, length in halo_runs.local[core])
    left, top = corner
    caption = f"{count} sticks: {count - local - remote} padding, {local} local, {remote} remote"
    drawn = [
        draw_text(left, top - 24, _name_row(plan, core), font_weight=650),
        draw_text(left, top - 10, caption, fill="var(--muted)", font_size=11),
    ]
    for run in _iter_runs(owners, span.start - first * sticks.padded_width, sticks.padded_width):
        if run.owner != UNREAD_STICK:
            drawn.append(_draw_run(run, left, top, cell, _describe_run(run, core)))
    return "".join(drawn), last - first + 1


def _name_row(plan: ConvPlan, row: int) -> str:
    """Return the heading of a panel: a core, or the row of cores that share the sticks (BLOCK and WIDTH)."""
    return f"core {row}" if plan.sharding.columns == 1 else f"row {row} of {plan.sharding.columns} cores"


def _find_owners(plan: ConvPlan, sticks: PaddedSticks) -> IntArray:
    """Return the core that holds each padded stick, or `PADDING_STICK`."""
    starts = np.array([run.start for run in plan.sharding.split_inputs(plan.conv.input_sticks)])
    owners: IntArray = np.where(
        sticks.input_stick_numbers >= 0,
        np.searchsorted(starts, sticks.input_stick_numbers, side="right") - 1,
        PADDING_STICK,
    )
    return owners


def _iter_runs(owners: IntArray, offset: int, width: int) -> Iterator[_OwnerRun]:
    """Yield the runs of sticks with equal owner on one line. The first stick is in column `offset` of its line."""
    place = np.arange(len(owners)) + offset
    line, column = np.divmod(place, width)
    begins = np.ones(len(owners), dtype=bool)
    begins[1:] = (owners[1:] != owners[:-1]) | (line[1:] != line[:-1])
    first = np.flatnonzero(begins)
    lengths = np.diff(np.append(first, len(owners)))
    for at, length in zip(first.tolist(), lengths.tolist(), strict=True):
        yield _OwnerRun(int(line[at]), int(column[at]), length, int(owners[at]))


def _draw_run(run: _OwnerRun, left: float, top: float, cell: float, label: str) -> str:
    """Draw a run of sticks as a bar. If the cells are large enough, outline every stick."""
    look: dict[str, object] = {"fill": PADDING_FILL, "stroke": "currentColor", "stroke_opacity": 0.25}
    if run.owner >= 0:
        colour, opacity = get_series_colour(run.owner), 0.85 if label.startswith("remote") else 0.4
        look = {"fill": colour, "fill_opacity": opacity, "stroke": colour, "stroke_opacity": 0.8}
    x, y, tall = left + run.column * cell, top + run.line * cell, cell * 0.94
    bar = draw_rect(x, y, run.length * cell, tall, label, **look)
    if cell < MIN_OUTLINED_CELL_SIZE or run.length == 1:
        return bar
    lines = "".join(f"M{x + stick * cell:.1f} {y:.1f}v{tall:.1f}" for stick in range(1, run.length))
    return f'{bar}<path d="{lines}" stroke="currentColor" stroke-opacity="0.25" pointer-events="none"/>'


def _describe_run(run: _OwnerRun, core: int) -> str:
    if run.owner == PADDING_STICK:
        return f"padding: {run.length} sticks"
    if core < 0:
        return f"core {run.owner}: {run.length} sticks"
    if run.owner == core:
        return f"local: {run.length} sticks"
    return f"remote: {run.length} sticks from core {run.owner}"


def _draw_legend(y: float) -> str:
    local, remote = get_series_colour(0), get_series_colour(1)
    looks: dict[str, dict[str, object]] = {
        "padding": {"fill": PADDING_FILL, "stroke": "currentColor", "stroke_opacity": 0.3},
        "local: on the same core": {"fill": local, "fill_opacity": 0.4, "stroke": local},
        "remote: from another core, in its colour": {"fill": remote, "fill_opacity": 0.85, "stroke": remote},
    }
    drawn, x = [], LEFT_MARGIN
    for words, look in looks.items():
        mark = draw_rect(0, 0, 14, 14, "", **look)
        drawn.append(f'<g transform="translate({x:.1f} {y:.1f})">{mark}{draw_text(20, 11.5, words)}</g>')
        x += 42 + len(words) * 6.6
    return "".join(drawn)
