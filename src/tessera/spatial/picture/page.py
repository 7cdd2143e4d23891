"""A plan as a page: its picture, and beside it the worker that is pointed at, enlarged and in numbers."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from string import Template

from tessera.geometry import HaloPlan, Move
from tessera.report.figures import format_bytes
from tessera.report.svg import FONT, style_sheet
from tessera.spatial.picture.plan import describe, plan_svg, span

SCRIPT = """\
const workers = [...document.querySelectorAll("#plan [data-worker]")];
const arrows = [...document.querySelectorAll("#plan [data-from]")];
const cards = [...document.querySelectorAll("section[data-card]")];
const zoom = document.getElementById("zoom");
function show(number) {
  const partners = new Set([number]);
  for (const card of cards) {
    card.hidden = card.dataset.card !== number;
    if (!card.hidden) for (const partner of card.dataset.partners.split(" ")) partners.add(partner);
  }
  for (const arrow of arrows)
    arrow.style.opacity = arrow.dataset.from === number || arrow.dataset.to === number ? 1 : 0.06;
  for (const worker of workers) {
    worker.style.opacity = partners.has(worker.dataset.worker) ? 1 : 0.3;
    if (worker.dataset.worker !== number) continue;
    const box = worker.getBBox(), margin = 6;
    const place = [box.x - margin, box.y - margin, box.width + 2 * margin, box.height + 2 * margin];
    zoom.setAttribute("viewBox", place.join(" "));
    const copy = worker.cloneNode(true);
    copy.removeAttribute("tabindex");
    copy.removeAttribute("data-worker");
    zoom.replaceChildren(copy);
  }
}
for (const worker of workers)
  for (const event of ["pointerenter", "focus"]) worker.addEventListener(event, () => show(worker.dataset.worker));
if (workers.length) show(workers[0].dataset.worker);
"""

STYLE = """\
body { margin: 0; padding: 1.5rem; font: 400 0.95rem/1.5 $font; }
main { display: flex; flex-wrap: wrap; gap: 1.5rem; align-items: flex-start; }
#plan { flex: 3 1 36rem; min-width: 0; overflow-x: auto; }
#plan svg { background: none; }
#plan [data-worker] { cursor: crosshair; }
#plan [data-worker]:focus-visible { outline: 2px solid var(--series-1); outline-offset: 3px; }
aside { flex: 1 1 23rem; position: sticky; top: 1rem; }
#zoom { display: block; width: 100%; height: auto; max-height: 50vh; }
h2 { font-size: 1.05rem; margin: 1rem 0 0.4rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: 0.9rem; }
th { text-align: left; color: var(--muted); font-weight: 500; }
th, td {
  padding: 0.15rem 0.6rem 0.15rem 0; white-space: nowrap;
  border-bottom: 1px solid color-mix(in srgb, currentColor 14%, transparent);
}
.number { text-align: right; }
p { color: var(--muted); margin: 0.4rem 0; }
@media (prefers-reduced-motion: no-preference) { #plan g { transition: opacity 0.12s; } }
"""

PAGE = Template("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="$policy">
<title>$title</title>
<style>:root { color-scheme: light dark; } $colours $style</style>
</head>
<body>
<main>
<div id="plan">$picture</div>
<aside aria-live="polite">
<svg id="zoom" aria-hidden="true" fill="currentColor" font-size="12"></svg>
$cards
</aside>
</main>
<script>$script</script>
</body>
</html>
""")


def plan_page(plan: HaloPlan, pixel_bytes: int) -> str:
    """The page as text; a pixel has so many bytes with all its channels."""
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    return PAGE.substitute(
        policy=f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        title=escape(describe(plan)),
        colours=style_sheet("body"),
        style=Template(STYLE).substitute(font=FONT),
        picture=plan_svg(plan, standalone=False),
        cards="\n".join(_card(plan, worker, pixel_bytes) for worker in range(len(plan.workers))),
        script=SCRIPT,
    )


def _card(plan: HaloPlan, number: int, pixel_bytes: int) -> str:
    mine = plan.workers[number]
    partners = sorted({move.source for move in mine.receives} | {move.target for move in mine.sends})
    padded = sum(box.size for box in mine.pads)
    has = f"{span(mine.owned)}, {mine.owned.size:,} pixels" if mine.owned else "no pixels"
    reads = f"{span(mine.need)}, of it {padded:,} pixels of padding" if mine.need else "nothing"
    return (
        f'<section data-card="{number}" data-partners="{" ".join(map(str, partners))}">'
        f"<h2>Worker {number}</h2><p>Has {has}. Its output reads {reads}.</p>"
        + _table("receives from", [(move.source, move) for move in mine.receives], pixel_bytes)
        + _table("sends to", [(move.target, move) for move in mine.sends], pixel_bytes)
        + "</section>"
    )


def _table(heading: str, moves: Sequence[tuple[int, Move]], pixel_bytes: int) -> str:
    if not moves:
        return f"<p>It {heading.partition(' ')[0]} nothing.</p>"
    rows = "".join(
        f'<tr><td>{other}</td><td>{span(move.taken)}</td><td class="number">{move.taken.size:,}</td>'
        f'<td class="number">{format_bytes(move.taken.size * pixel_bytes)}</td></tr>'
        for other, move in moves
    )
    heads = f'<th>{heading}</th><th>what</th><th class="number">pixels</th><th class="number">bytes</th>'
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
