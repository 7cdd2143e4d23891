"""Candidates as dots on a terminal: images per second over latency, the front with marks of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

DOT, FRONT = "·", "◆"


def scatter(
    points: Sequence[tuple[float, float, bool]],
    *,
    x_label: Callable[[float], str],
    y_label: Callable[[float], str],
    width: int = 64,
    height: int = 12,
) -> list[str]:
    """Lines that show (x, y, whether it is of the front); the x axis is logarithmic.

    >>> print("\\n".join(scatter([(1, 1, True), (10, 3, False), (100, 5, True)],
    ...     x_label=str, y_label=str, width=13, height=3)))
    5 ┤            ◆
      │      ·
    1 ┤◆
      └─────────────
       1         100
    """
    xs, ys = [math.log(x) for x, _, _ in points], [y for _, y, _ in points]
    grid = [[" "] * width for _ in range(height)]
    for (_, y, of_front), x in sorted(zip(points, xs, strict=True), key=lambda pair: pair[0][2]):
        row = height - 1 - round(_share(y, min(ys), max(ys)) * (height - 1))
        grid[row][round(_share(x, min(xs), max(xs)) * (width - 1))] = FRONT if of_front else DOT
    names = {0: y_label(max(ys)), height - 1: y_label(min(ys))}
    wide = max(map(len, names.values()))
    lines = [
        f"{names.get(number, ''):>{wide}} {'┤' if number in names else '│'}{''.join(row)}".rstrip()
        for number, row in enumerate(grid)
    ]
    first, last = x_label(min(x for x, _, _ in points)), x_label(max(x for x, _, _ in points))
    lines.append(f"{'':>{wide}} └{'─' * width}")
    lines.append(f"{'':>{wide}}  {first}{last:>{max(1, width - len(first))}}")
    return lines


def _share(value: float, low: float, high: float) -> float:
    """Where a value lies between two others; in the middle where they are one."""
    return (value - low) / (high - low) if high > low else 0.5
