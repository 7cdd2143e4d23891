"""HTML page of a plan: shards and halos, memory, timeline, and the candidates of the search."""

from __future__ import annotations

from html import escape

from tessera.coregrid.cost.timeline import build_timeline
from tessera.coregrid.pictures.core_charts import draw_memory, draw_timeline
from tessera.coregrid.pictures.halos import draw_halos
from tessera.coregrid.planning.plan import MIB, ConvPlan, describe_plan
from tessera.coregrid.search import ConvSearch
from tessera.report.figures import format_bytes, format_seconds
from tessera.report.picture_page import build_picture_page, build_picture_table

MAX_CANDIDATE_ROWS = 40
CANDIDATE_HEADINGS = ("setting", "fits", "time", "memory", "bytes moved")


def build_plan_page(plan: ConvPlan, search: ConvSearch | None = None) -> str:
    """Return an HTML page with the drawings of a plan and, if given, the candidates of a search."""
    shown = plan.slices[0].plan if plan.slices else plan
    title = describe_plan(plan)
    parts = [
        f"<h1>{escape(title)}</h1>\n<p>{escape(plan.fit_summary)}</p>",
        *([_format_figure("Shards and halos", draw_halos(shown, standalone=False))] if shown.halo_runs else []),
        _format_figure("Memory of a core", draw_memory(plan, standalone=False)),
        _format_figure("Timeline of the busiest core", draw_timeline(build_timeline(plan), standalone=False)),
        *([f"<h2>Candidates</h2>{_format_candidates(search)}"] if search else []),
    ]
    return build_picture_page("\n".join(parts), title=title)


def _format_figure(title: str, svg: str) -> str:
    return f"<h2>{escape(title)}</h2><figure>{svg}</figure>"


def _format_candidates(search: ConvSearch) -> str:
    rows = [
        (
            str(candidate),
            "yes" if candidate.fits else "no",
            format_seconds(candidate.seconds),
            f"{candidate.plan.high_water / MIB:.2f} MiB",
            format_bytes(candidate.plan.ledger.total),
        )
        for candidate in search.candidates[:MAX_CANDIDATE_ROWS]
    ]
    omitted = len(search.candidates) - MAX_CANDIDATE_ROWS
    rest = f"<p>and {omitted} more</p>" if omitted > 0 else ""
    return f"<figure>{build_picture_table(CANDIDATE_HEADINGS, rows, numbers=(2, 3, 4))}</figure>{rest}"
