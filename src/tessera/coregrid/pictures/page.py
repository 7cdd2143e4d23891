"""A plan as a page that stands alone: shards and halos, memory, timeline, and the candidates of the search."""

from __future__ import annotations

from html import escape

from tessera.coregrid.cost.timeline import timeline
from tessera.coregrid.pictures.halos import describe, halos_svg
from tessera.coregrid.pictures.lanes import timeline_svg
from tessera.coregrid.pictures.memory_map import memory_svg
from tessera.coregrid.planning.plan import MB, ConvPlan
from tessera.coregrid.planning.search import Search
from tessera.report.figures import format_bytes, format_seconds
from tessera.report.picture_page import picture_page, picture_table

MOST_ROWS = 40
HEADS = ("setting", "fits", "time", "memory", "bytes moved")


def plan_page(plan: ConvPlan, search: Search | None = None) -> str:
    """The page as text."""
    shown = plan.slices[0].plan if plan.slices else plan
    title = describe(plan)
    parts = [
        f"<h1>{escape(title)}</h1>\n<p>{escape(plan.reason)}</p>",
        *([_figure("Shards and halos", halos_svg(shown, standalone=False))] if shown.haloing else []),
        _figure("Memory of a core", memory_svg(plan, standalone=False)),
        _figure("Timeline of the busiest core", timeline_svg(timeline(plan), standalone=False)),
        *([f"<h2>Candidates</h2>{_candidates(search)}"] if search else []),
    ]
    return picture_page("\n".join(parts), title=title)


def _figure(title: str, svg: str) -> str:
    return f"<h2>{escape(title)}</h2><figure>{svg}</figure>"


def _candidates(search: Search) -> str:
    rows = [
        (
            str(candidate),
            "yes" if candidate.fits else "no",
            format_seconds(candidate.seconds),
            f"{candidate.plan.high_water / MB:.2f} MB",
            format_bytes(candidate.plan.ledger.total),
        )
        for candidate in search.candidates[:MOST_ROWS]
    ]
    more = len(search.candidates) - MOST_ROWS
    rest = f"<p>and {more} more</p>" if more > 0 else ""
    return f"<figure>{picture_table(HEADS, rows, numbers=(2, 3, 4))}</figure>{rest}"
