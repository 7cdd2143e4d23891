"""The Pareto front of throughput and latency, and its plot on a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


def find_pareto_front(points: Iterable[tuple[T, float, float]]) -> list[T]:
    """Return the Pareto-optimal items of (item, images/s, latency) points, highest latency first.

    >>> find_pareto_front([("a", 10.0, 0.1), ("b", 20.0, 0.2), ("c", 15.0, 0.3), ("d", 5.0, 0.05)])
    ['b', 'a', 'd']
    """
    front: list[T] = []
    least = float("inf")
    # Sort by falling rate, and by rising latency among equal rates.
    for item, _, latency in sorted(points, key=lambda point: (-point[1], point[2])):
        if latency < least:
            least = latency
            front.append(item)
    return front


DOT_MARK, FRONT_MARK = "·", "◆"  # points off and on the Pareto front


def format_scatter(
    points: Sequence[tuple[float, float, bool]],
    *,
    x_label: Callable[[float], str],
    y_label: Callable[[float], str],
    width: int = 64,
    height: int = 12,
) -> list[str]:
    """Return a text plot, as lines, of points (x, y, is_on_front); the x axis is logarithmic.

    >>> print("\\n".join(format_scatter([(1, 1, True), (10, 3, False), (100, 5, True)],
    ...     x_label=str, y_label=str, width=13, height=3)))
    5 ┤            ◆
      │      ·
    1 ┤◆
      └─────────────
       1         100
    """
    xs, ys = [math.log(x) for x, _, _ in points], [y for _, y, _ in points]
    grid = [[" "] * width for _ in range(height)]
    for (_, y, on_front), x in sorted(zip(points, xs, strict=True), key=lambda pair: pair[0][2]):
        row = height - 1 - round(_interpolate(y, min(ys), max(ys)) * (height - 1))
        grid[row][round(_interpolate(x, min(xs), max(xs)) * (width - 1))] = FRONT_MARK if on_front else DOT_MARK
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


def _interpolate(value: float, low: float, high: float) -> float:
    """Return the position of a value between two bounds, from 0 to 1; 0.5 if the bounds are equal."""
    return (value - low) / (high - low) if high > low else 0.5
