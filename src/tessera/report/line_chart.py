"""Lines drawn with characters, for terminals: a chart with an axis, and a small one of a single row."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

BARS = "▁▂▃▄▅▆▇█"
WIDEST_STEP = 4  # columns from one value to the next: few values need not fill a wide screen
LEAST_SPAN = 0.1  # of the values, that the height of a small chart stands for: less is noise and looks flat


def line_chart(
    values: Sequence[float],
    levels: Sequence[tuple[int, int, float]],
    *,
    width: int,
    label: Callable[[float], str],
    height: int = 8,
) -> list[str]:
    """Dots for the values and lines for the levels (start, end, value); a mark below each place where one begins.

    >>> print("\\n".join(line_chart([1, 1, 2, 2], [(0, 2, 1), (2, 4, 2)], width=16, label=str, height=3)))
    2 ┤      •──•──
      │
    1 ┤•──•──
      └──────▲─────
             1
    """
    low, high = min(values), max(values)
    span = high - low
    names = {0: label(high), height - 1: label(low)} if span else {height // 2: label(high)}
    if span and height >= 5:
        names[(height - 1) // 2] = label(high - span * ((height - 1) // 2) / (height - 1))
    wide = max(map(len, names.values()))
    places, step = _places(len(values), width - wide - 2)
    columns = (places[-1] + 1) * step

    def row(value: float) -> int:
        return round((high - value) / span * (height - 1)) if span else height // 2

    grid = [[" "] * columns for _ in range(height)]
    for start, end, value in levels:
        for column in range(places[start] * step, (places[end - 1] + 1) * step):
            grid[row(value)][column] = "─"
    for place, group in _groups(values, places).items():
        grid[row(statistics.median(group))][place * step] = "•"
    lines = [
        f"{names.get(number, ''):>{wide}} {'┤' if number in names else '│'}{''.join(cells)}"
        for number, cells in enumerate(grid)
    ]
    marks = [places[start] * step for start, _, _ in levels[1:]]
    lines.append(f"{'':>{wide}} └{''.join('▲' if column in marks else '─' for column in range(columns))}")
    if marks:
        lines.append(f"{'':>{wide}}  {_numbered(marks)[:columns]}")
    return [line.rstrip() for line in lines]


def _numbered(marks: Sequence[int]) -> str:
    """The numbers of the marks, each in the column of its mark as far as there is room."""
    line = ""
    for number, column in enumerate(marks, 1):
        line = line.ljust(column) + (str(number) if len(line) <= column else "")
    return line


def spark_line(values: Sequence[float], width: int) -> str:
    """A chart of one row.

    >>> spark_line([1.0, 1.0, 2.0, 3.0], 10), spark_line([1.0, 1.01, 0.99], 10)
    ('▁▁▅█', '▂▂▁')
    """
    places, _ = _places(len(values), width)
    groups = [statistics.median(group) for group in _groups(values, places).values()]
    low = min(groups)
    span = max(max(groups) - low, LEAST_SPAN * abs(low)) or 1.0
    return "".join(BARS[round((value - low) / span * (len(BARS) - 1))] for value in groups)


def _places(count: int, width: int) -> tuple[list[int], int]:
    """The place of each value from left to right, and the columns a place takes; many values share a place."""
    width = max(8, width)
    together = math.ceil(count / width)
    places = [number // together for number in range(count)]
    return places, min(WIDEST_STEP, max(1, width // (places[-1] + 1)))


def _groups(values: Sequence[float], places: Sequence[int]) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for place, value in zip(places, values, strict=True):
        found.setdefault(place, []).append(value)
    return found
