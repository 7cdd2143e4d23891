"""Drawing of the core grid during one convolution: the shards, the halo between cores, and the multicasts."""

from __future__ import annotations

from tessera.coregrid.config import ShardLayout
from tessera.coregrid.planning.plan import ConvPlan, describe_plan
from tessera.report.figures import format_bytes
from tessera.report.svg import build_svg, draw_rect, draw_text, get_series_colour

CELL, GAP, LEFT, TOP = 56.0, 22.0, 24.0, 84.0
MAX_ARROW_WIDTH = 7.0
ARROW_HEAD = (
    '<defs><marker id="tessera-arrow" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="5" markerHeight="5" '
    'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L6 3L0 6z" fill="currentColor"/></marker></defs>'
)


def draw_core_grid(plan: ConvPlan, *, standalone: bool = True) -> str:
    """Draw the grid of cores as SVG: cores in use, the bytes that each core sends in the halo exchange, and arrows."""
    grid, sharding = plan.grid, plan.sharding
    stick = sharding.in_width * plan.sticks_dtype.torch.itemsize
    sent = [count * stick for count in plan.halo.sent] if plan.halo else [0] * sharding.rows
    copied = [count * stick for count in plan.halo.copied] if plan.halo else [0] * sharding.rows
    most = max([1, *sent])
    drawn = [
        ARROW_HEAD,
        draw_text(LEFT, 24, describe_plan(plan), font_size=15, font_weight=650),
        draw_text(LEFT, 44, _describe_traffic(plan, sum(sent) * sharding.columns), fill="var(--muted)"),
        draw_text(
            LEFT, 62, "fill: bytes that a core sends in the halo exchange; arrows: to which core", fill="var(--muted)"
        ),
    ]
    used = {
        _find_core(plan, row, column): (row, column)
        for row in range(sharding.rows)
        for column in range(sharding.columns)
    }
    for core in range(grid.size):
        x, y = _locate(core, grid.cols)
        place = used.get(core)
        if place is None:
            drawn.append(draw_rect(x, y, CELL, CELL, "idle", fill="none", stroke="currentColor", stroke_opacity=0.25))
            continue
        row, column = place
        words = (
            f"core {core}: shard ({row}, {column}), copies {format_bytes(copied[row])}, sends {format_bytes(sent[row])}"
        )
        look = {
            "fill": get_series_colour(0),
            "fill_opacity": 0.12 + 0.6 * sent[row] / most,
            "stroke": get_series_colour(0),
        }
        drawn.append(draw_rect(x, y, CELL, CELL, words, **look))
        drawn.append(draw_text(x + 4, y + 13, str(core), font_size=10))
        drawn.append(draw_text(x + 4, y + CELL - 6, format_bytes(sent[row]), font_size=9))
    drawn += _draw_halo_arrows(plan, stick)
    if plan.layout != ShardLayout.HEIGHT and sharding.columns > 1:
        drawn += _draw_multicasts(plan)
    width, height = LEFT + grid.cols * (CELL + GAP) + 16, TOP + grid.rows * (CELL + GAP) + 8
    return build_svg(
        "".join(drawn), max(width, 660.0), height, f"core grid: {describe_plan(plan)}", standalone=standalone
    )


def _describe_traffic(plan: ConvPlan, halo: int) -> str:
    ledger = plan.ledger
    return (
        f"halo {format_bytes(halo)} between cores, multicast {format_bytes(ledger.multicast)}, "
        f"global memory {format_bytes(ledger.global_bytes)}"
    )


def _find_core(plan: ConvPlan, row: int, column: int) -> int:
    """Return the number of the core, counted along the rows of the grid, that holds shard (row, column)."""
    if plan.layout != ShardLayout.BLOCK:
        return row * plan.sharding.columns + column
    by_rows = plan.sharding.rows <= plan.grid.rows and plan.sharding.columns <= plan.grid.cols
    return row * plan.grid.cols + column if by_rows else column * plan.grid.cols + row


def _locate(core: int, across: int) -> tuple[float, float]:
    row, column = divmod(core, across)
    return LEFT + column * (CELL + GAP), TOP + row * (CELL + GAP)


def _draw_halo_arrows(plan: ConvPlan, stick: int) -> list[str]:
    """Draw an arrow for every pair of cores that exchange halo sticks, as wide as its bytes."""
    runs = plan.halo_runs
    if runs is None:
        return []
    flows = {pair: sum(length for _, _, length in moves) * stick for pair, moves in runs.remote.items()}
    most = max(flows.values(), default=1)
    drawn = []
    for (source, target), count in flows.items():
        for column in range(plan.sharding.columns):
            ends = [_locate(_find_core(plan, row, column), plan.grid.cols) for row in (source, target)]
            (x0, y0), (x1, y1) = [(x + CELL / 2, y + CELL / 2) for x, y in ends]
            length = max(((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5, 1.0)
            inset, aside = CELL * 0.38 / length, 5.0 / length
            across, along = (y1 - y0) * aside, (x1 - x0) * aside  # arrows in both directions lie side by side
            start = x0 + (x1 - x0) * inset + across, y0 + (y1 - y0) * inset - along
            stop = x1 - (x1 - x0) * inset + across, y1 - (y1 - y0) * inset - along
            wide = 0.8 + (MAX_ARROW_WIDTH - 0.8) * count / most
            drawn.append(
                f'<path d="M{start[0]:.1f} {start[1]:.1f}L{stop[0]:.1f} {stop[1]:.1f}" stroke="{get_series_colour(1)}" '
                f'stroke-width="{wide:.1f}" stroke-opacity="0.55" marker-end="url(#tessera-arrow)">'
                f"<title>core {source} to core {target}: {format_bytes(count)}</title></path>"
            )
    return drawn


def _draw_multicasts(plan: ConvPlan) -> list[str]:
    """Draw a line through every row of shards, along which activation blocks are multicast."""
    drawn = []
    for row in range(plan.sharding.rows):
        ends = [_locate(_find_core(plan, row, column), plan.grid.cols) for column in (0, plan.sharding.columns - 1)]
        (x0, y0), (x1, y1) = [(x + CELL / 2, y + CELL / 2) for x, y in ends]
        drawn.append(
            f'<path d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}" stroke="{get_series_colour(2)}" stroke-width="3" '
            f'stroke-opacity="0.5" stroke-dasharray="6 4"><title>multicast of activation blocks</title></path>'
        )
    return drawn
