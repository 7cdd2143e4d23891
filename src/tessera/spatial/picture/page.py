"""An HTML page with the picture of a plan, and details of the worker under the mouse pointer."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.geometry import HaloPlan, Move
from tessera.report.figures import format_bytes
from tessera.report.picture_page import build_picture_page, build_picture_table
from tessera.spatial.picture.plan import describe_plan, draw_plan, format_span

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
body { max-width: none; }
main { display: flex; flex-wrap: wrap; gap: 1.5rem; align-items: flex-start; }
#plan { flex: 3 1 36rem; min-width: 0; overflow-x: auto; }
#plan svg { background: none; }
#plan [data-worker] { cursor: crosshair; }
#plan [data-worker]:focus-visible { outline: 2px solid var(--series-1); outline-offset: 3px; }
aside { flex: 1 1 23rem; position: sticky; top: 1rem; }
#zoom { display: block; width: 100%; height: auto; max-height: 50vh; }
table { width: 100%; }
@media (prefers-reduced-motion: no-preference) { #plan g { transition: opacity 0.12s; } }
"""

BODY = """\
<main>
<div id="plan">{picture}</div>
<aside aria-live="polite">
<svg id="zoom" aria-hidden="true" fill="currentColor" font-size="12"></svg>
{cards}
</aside>
</main>"""


def build_plan_page(plan: HaloPlan, pixel_bytes: int) -> str:
    """Return the HTML page of a plan; a pixel has `pixel_bytes` bytes with all its channels."""
    cards = (_build_card(plan, worker, pixel_bytes) for worker in range(len(plan.workers)))
    body = BODY.format(picture=draw_plan(plan, standalone=False), cards="\n".join(cards))
    return build_picture_page(body, title=describe_plan(plan), style=STYLE, script=SCRIPT)


def _build_card(plan: HaloPlan, number: int, pixel_bytes: int) -> str:
    worker = plan.workers[number]
    partners = sorted({move.source for move in worker.receives} | {move.target for move in worker.sends})
    padded = sum(box.size for box in worker.pads)
    has = f"{format_span(worker.owned)}, {worker.owned.size:,} pixels" if worker.owned else "no pixels"
    reads = f"{format_span(worker.need)}, including {padded:,} pixels of padding" if worker.need else "nothing"
    return (
        f'<section data-card="{number}" data-partners="{" ".join(map(str, partners))}">'
        f"<h2>Worker {number}</h2><p>Owns {has}. Its output reads {reads}.</p>"
        + _build_table("receives from", [(move.source, move) for move in worker.receives], pixel_bytes)
        + _build_table("sends to", [(move.target, move) for move in worker.sends], pixel_bytes)
        + "</section>"
    )


def _build_table(heading: str, moves: Sequence[tuple[int, Move]], pixel_bytes: int) -> str:
    if not moves:
        return f"<p>It {heading.partition(' ')[0]} nothing.</p>"
    rows = [
        (
            str(peer),
            format_span(move.source_box),
            f"{move.source_box.size:,}",
            format_bytes(move.source_box.size * pixel_bytes),
        )
        for peer, move in moves
    ]
    return build_picture_table((heading, "box", "pixels", "bytes"), rows, numbers=(2, 3))
