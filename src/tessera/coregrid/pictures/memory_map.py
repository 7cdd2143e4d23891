"""The memory of one core as a picture: every buffer to scale, what is free, or by how much it is too small."""

from __future__ import annotations

from tessera.coregrid.planning.plan import MB, ConvPlan
from tessera.report.svg import document, rect, series, text

LEFT, TOP, WIDE, TALL = 16.0, 56.0, 180.0, 420.0
RIGHT = 660.0
LEAST = 3.0  # pixels of a buffer, however small
LINE = 17.0  # between labels


def memory_svg(plan: ConvPlan, *, standalone: bool = True) -> str:
    """A core's memory while the convolution runs, from its buffers to what is left."""
    parts = plan.footprint.parts()
    if not plan.footprint.input_kept:
        parts.pop("input", None)  # it was freed when the haloed input was made
    taken = sum(parts.values())
    whole = max(plan.have, taken)
    scale = TALL / whole
    drawn, y, label = [], TOP, TOP + 10
    for number, (name, size) in enumerate(parts.items()):
        tall = max(size * scale, LEAST)
        colour = series(number)
        words = f"{name}: {size:,} bytes"
        drawn.append(rect(LEFT, y, WIDE, tall, words, fill=colour, fill_opacity=0.55, stroke=colour))
        label = max(label, y + tall / 2 + 4)
        drawn.append(text(LEFT + WIDE + 14, label, words))
        y, label = y + tall, label + LINE
    if taken < plan.have:
        free = plan.have - taken
        drawn.append(
            rect(LEFT, y, WIDE, max(free * scale, 0.0), f"free: {free:,} bytes", fill="none", stroke="currentColor")
        )
        drawn.append(
            text(LEFT + WIDE + 14, max(label, y + free * scale / 2 + 4), f"free: {free:,} bytes", fill="var(--muted)")
        )
    else:
        edge = TOP + plan.have * scale
        line = f'<path d="M{LEFT - 6:.1f} {edge:.1f}H{RIGHT:.1f}" stroke="currentColor" stroke-width="2"/>'
        said = f"the end of the memory: {plan.have:,} bytes"
        drawn += [line, text(RIGHT, edge - 5, said, font_weight=650, text_anchor="end")]
    head = text(LEFT, 22, "one core's memory", font_size=15, font_weight=650)
    said = f"{plan.reason}; {taken / MB:.2f} MB while it runs"
    body = head + text(LEFT, 42, said, fill="var(--muted)") + "".join(drawn)
    height = max(TOP + TALL, label, y) + 24
    return document(body, RIGHT + 16, height, f"memory of a core: {plan.reason}", standalone=standalone)
