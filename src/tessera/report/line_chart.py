"""Text charts for terminals: a line chart with an axis, and a spark line of one row."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

SPARK_CHARACTERS = "▁▂▃▄▅▆▇█"
MAX_COLUMNS_PER_VALUE = 4  # maximum columns per value, so that few values are not spread over a wide screen
MIN_RELATIVE_SPAN = 0.1  # smallest relative range of a spark line: smaller variation is noise and looks flat


def draw_line_chart(
    values: Sequence[float],
    levels: Sequence[tuple[int, int, float]],
    *,
    width: int,
    label: Callable[[float], str],
    height: int = 8,
) -> list[str]:
    """Draw dots for values and lines for levels (start, end, value), with a mark where each new level begins.

    >>> print("\\n".join(draw_line_chart([1, 1, 2, 2], [(0, 2, 1), (2, 4, 2)], width=16, label=str, height=3)))
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
    slots, step = _compute_slots(len(values), width - wide - 2)
    columns = (slots[-1] + 1) * step

    def get_row(value: float) -> int:
        return round((high - value) / span * (height - 1)) if span else height // 2

    grid = [[" "] * columns for _ in range(height)]
    for start, end, value in levels:
        for column in range(slots[start] * step, (slots[end - 1] + 1) * step):
            grid[get_row(value)][column] = "─"
    for slot, group in _group_values(values, slots).items():
        grid[get_row(statistics.median(group))][slot * step] = "•"
    lines = [
        f"{names.get(number, ''):>{wide}} {'┤' if number in names else '│'}{''.join(cells)}"
        for number, cells in enumerate(grid)
    ]
    marks = [slots[start] * step for start, _, _ in levels[1:]]
    lines.append(f"{'':>{wide}} └{''.join('▲' if column in marks else '─' for column in range(columns))}")
    if marks:
        lines.append(f"{'':>{wide}}  {_number_marks(marks)[:columns]}")
    return [line.rstrip() for line in lines]


def _number_marks(marks: Sequence[int]) -> str:
    """Return a line with the number of each mark below it; a number that does not fit is omitted."""
    line = ""
    for number, column in enumerate(marks, 1):
        line = line.ljust(column) + (str(number) if len(line) <= column else "")
    return line


def draw_spark_line(values: Sequence[float], width: int) -> str:
    """Draw values as a chart of one row, at most `width` characters wide.

    >>> draw_spark_line([1.0, 1.0, 2.0, 3.0], 10), draw_spark_line([1.0, 1.01, 0.99], 10)
    ('▁▁▅█', '▂▂▁')
    """
    slots, _ = _compute_slots(len(values), width)
    groups = [statistics.median(group) for group in _group_values(values, slots).values()]
    low = min(groups)
    span = max(max(groups) - low, MIN_RELATIVE_SPAN * abs(low)) or 1.0
    return "".join(SPARK_CHARACTERS[round((value - low) / span * (len(SPARK_CHARACTERS) - 1))] for value in groups)


def _compute_slots(count: int, width: int) -> tuple[list[int], int]:
    """Return the slot of each value, and the columns per slot; with more values than columns, values share slots."""
    width = max(8, width)
    together = math.ceil(count / width)
    slots = [number // together for number in range(count)]
    return slots, min(MAX_COLUMNS_PER_VALUE, max(1, width // (slots[-1] + 1)))


def _group_values(values: Sequence[float], slots: Sequence[int]) -> dict[int, list[float]]:
    groups: dict[int, list[float]] = {}
    for slot, value in zip(slots, values, strict=True):
        groups.setdefault(slot, []).append(value)
    return groups
