"""An HTML page with the plot and the tables of a scaling study."""

from __future__ import annotations

from tessera.report.blocks import Card, Cards, Column, Picture, Section, Table
from tessera.report.figures import format_bytes, format_change, format_seconds
from tessera.report.page import build_document
from tessera.spatial.scaling.plot import draw_scaling
from tessera.spatial.scaling.prediction import compute_efficiencies
from tessera.spatial.scaling.table import ScalingResult

HALF = 0.5
INTROS = {
    "strong": "The same image over more and more ranks.",
    "weak": "The image grows with the ranks: every rank keeps its tile.",
    "measured": "The prediction is for the same ranks on the cores of this host. The error of the scaling remains when "
    "the first row is scaled to fit: it shows how well the change with the ranks is predicted.",
}


def build_scaling_page(scaling: ScalingResult) -> str:
    """Return the HTML page of a scaling study."""
    drawn = draw_scaling(scaling, standalone=False)
    plot = Picture(
        drawn, "time, efficiency and memory over the number of ranks", "Predicted; measured values are marked."
    )
    parts = [Section("Summary", "", [_build_cards(scaling)]), Section("Scaling", "", [plot])]
    for title, columns, rows in scaling.tables:
        headings = [Column(c.title.capitalize(), c.kind) for c in columns]
        name, _, caption = title.partition(": ")
        parts.append(Section(name.capitalize(), INTROS[name.split()[0]], [Table(headings, rows, caption)]))
    return build_document(parts, title="Predicted scaling", subtitle=scaling.step)


def _build_cards(scaling: ScalingResult) -> Cards:
    strong = scaling.strong
    good = [p for p, share in zip(strong, compute_efficiencies(strong), strict=True) if share >= HALF]
    fits = [p for p in strong if p.fits]
    best = min(strong, key=lambda p: p.seconds)
    cards = [
        Card("Fastest step", format_seconds(best.seconds), f"on {best.ranks:,} ranks"),
        Card("Half efficient up to", f"{good[-1].ranks:,}", "ranks of strong scaling"),
        Card("Fits from", f"{fits[0].ranks:,}", f"ranks of {format_bytes(fits[0].available_memory)} each")
        if fits
        else Card("Fits", "never", "on these numbers of ranks", "bad"),
    ]
    if scaling.measured:
        worst = max(scaling.measured, key=lambda m: abs(m.error))
        cards.append(Card("Largest error", format_change(worst.error), "of the prediction"))
    return Cards(cards)
