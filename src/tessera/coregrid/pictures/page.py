"""A plan as a page that stands alone: shards and halos, memory, timeline, and the candidates of the search."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from string import Template

from tessera.coregrid.cost.timeline import timeline
from tessera.coregrid.pictures.halos import describe, halos_svg
from tessera.coregrid.pictures.lanes import timeline_svg
from tessera.coregrid.pictures.memory_map import memory_svg
from tessera.coregrid.planning.plan import MB, ConvPlan
from tessera.coregrid.planning.search import Search
from tessera.report.figures import format_bytes, format_seconds
from tessera.report.svg import FONT, style_sheet

MOST_ROWS = 40
STYLE = """\
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem; font: 400 0.95rem/1.5 $font; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin: 1.6rem 0 0.4rem; }
figure { margin: 0; overflow-x: auto; } figure svg { background: none; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.9rem; }
th { text-align: left; color: var(--muted); font-weight: 500; }
th, td {
  padding: 0.15rem 0.9rem 0.15rem 0; white-space: nowrap;
  border-bottom: 1px solid color-mix(in srgb, currentColor 14%, transparent);
}
.number { text-align: right; } .misfit { color: var(--muted); }
"""
PAGE = Template("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>$title</title>
<style>:root { color-scheme: light dark; } $colours $style</style>
</head>
<body>
<h1>$title</h1>
<p>$said</p>
$parts
</body>
</html>
""")


def plan_page(plan: ConvPlan, search: Search | None = None) -> str:
    """The page as text."""
    shown = plan.slices[0].plan if plan.slices else plan
    parts = [
        *([_figure("Shards and halos", halos_svg(shown, standalone=False))] if shown.haloing else []),
        _figure("Memory of a core", memory_svg(plan, standalone=False)),
        _figure("Timeline of the busiest core", timeline_svg(timeline(plan), standalone=False)),
        *([f"<h2>Candidates</h2>{_candidates(search)}"] if search else []),
    ]
    return PAGE.substitute(
        title=escape(describe(plan)),
        said=escape(plan.reason),
        colours=style_sheet("body"),
        style=Template(STYLE).substitute(font=FONT),
        parts="\n".join(parts),
    )


def _figure(title: str, svg: str) -> str:
    return f"<h2>{escape(title)}</h2><figure>{svg}</figure>"


def _candidates(search: Search) -> str:
    heads = _row(("setting", "fits", "time", "memory", "bytes moved"), "th", ("", "", *["number"] * 3))
    rows: Sequence[str] = [
        _row(
            (
                str(candidate),
                "yes" if candidate.fits else "no",
                format_seconds(candidate.seconds),
                f"{candidate.plan.high_water / MB:.2f} MB",
                format_bytes(candidate.plan.ledger.total),
            ),
            "td",
            ("", "", *["number"] * 3),
        )
        for candidate in search.candidates[:MOST_ROWS]
    ]
    more = len(search.candidates) - MOST_ROWS
    rest = f"<p>and {more} more</p>" if more > 0 else ""
    return f"<table><thead>{heads}</thead><tbody>{''.join(rows)}</tbody></table>{rest}"


def _row(cells: Sequence[str], tag: str, kinds: Sequence[str]) -> str:
    inner = "".join(
        f'<{tag} class="{kind}">{escape(cell)}</{tag}>' if kind else f"<{tag}>{escape(cell)}</{tag}>"
        for cell, kind in zip(cells, kinds, strict=True)
    )
    return f"<tr>{inner}</tr>"
