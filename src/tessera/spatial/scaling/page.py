"""A scaling as a page of its own: the plot and its tables, made of the report's blocks."""

from __future__ import annotations

from tessera.report.blocks import Card, Cards, Column, Picture, Section, Table
from tessera.report.figures import format_bytes, format_percent, format_seconds
from tessera.report.page import document
from tessera.spatial.scaling.plot import scaling_svg
from tessera.spatial.scaling.points import efficiencies
from tessera.spatial.scaling.table import Scaling

HALF = 0.5
INTROS = {
    "strong": "The same image over more and more ranks.",
    "weak": "The image grows with the ranks: every rank keeps its tile.",
    "measured": "The prediction is for the same ranks on the cores of this host. The error of the scaling is what is "
    "left of it once the first row fits: it says how well the change with the ranks is predicted.",
}


def scaling_page(scaling: Scaling) -> str:
    """The page as text."""
    drawn = scaling_svg(scaling, standalone=False)
    plot = Picture(
        drawn, "time, efficiency and memory over the number of ranks", "Predicted; measured where it says so."
    )
    parts = [Section("Summary", "", [_cards(scaling)]), Section("Scaling", "", [plot])]
    for title, columns, rows in scaling.tables:
        headings = [Column(c.name.capitalize(), "number" if c.align == "right" else "text") for c in columns]
        name, _, caption = title.partition(": ")
        parts.append(Section(name.capitalize(), INTROS[name.split()[0]], [Table(headings, rows, caption)]))
    return document(parts, title="Predicted scaling", kicker=scaling.step)


def _cards(scaling: Scaling) -> Cards:
    strong = scaling.strong
    good = [p for p, share in zip(strong, efficiencies(strong), strict=True) if share >= HALF]
    fits = [p for p in strong if p.fits]
    best = min(strong, key=lambda p: p.seconds)
    cards = [
        Card("Fastest step", format_seconds(best.seconds), f"on {best.ranks:,} ranks"),
        Card("Half efficient up to", f"{good[-1].ranks:,}", "ranks of strong scaling"),
        Card("Fits from", f"{fits[0].ranks:,}", f"ranks of {format_bytes(fits[0].room)} each")
        if fits
        else Card("Fits", "never", "on so many ranks", "bad"),
    ]
    if scaling.measured:
        worst = max(scaling.measured, key=lambda m: abs(m.error))
        cards.append(Card("Largest error", format_percent(worst.error, signed=True), "of what was measured"))
    return Cards(cards)
