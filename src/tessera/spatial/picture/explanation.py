"""The picture of an explanation: the modules of a network in order, how each is computed, and the bytes it receives.

The colour of a module shows whether it is computed on tiles, with the split moved to another dim, or whole on every
rank. The bar beside it shows the bytes that the busiest rank receives for it. The tooltip lists its operators.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from tessera.report.figures import format_bytes
from tessera.report.picture_page import build_picture_page, build_picture_table
from tessera.report.svg import build_svg, draw_rect, draw_text, get_series_colour

WAYS = {  # way: number of its colour, and its description
    "split": (0, "on tiles"),
    "moved": (4, "split moved to another dim"),
    "whole": (1, "whole on every rank"),
}
LINE, HEADER = 17.0, 44.0
WIDTH, NAME_WIDTH, CHIP, BAR_WIDTH = 860.0, 330.0, 12.0, 330.0
LETTER = 6.3  # width of a letter of a module's name
MAX_LINES = 400  # further modules are summed in one line


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedModule:
    """One module of a network: the most costly way in which one of its operators is computed, and its bytes."""

    name: str
    way: str
    received_bytes: int
    operators: str


def list_modules(rows: Sequence[Mapping[str, Any]]) -> list[ExplainedModule]:
    """Return the modules of an explanation in order. Consecutive operators of one module are one entry.

    >>> row = {"module": "stem", "operator": "relu", "shape": "1x2", "computed": "split", "received_bytes": 0}
    >>> [m.operators for m in list_modules([row, row | {"operator": "mean", "received_bytes": 8}])]
    ['relu 1x2 (split), mean 1x2 (split)']
    """
    grouped: list[list[Mapping[str, Any]]] = []
    for row in rows:
        if grouped and grouped[-1][0]["module"] == row["module"]:
            grouped[-1].append(row)
        else:
            grouped.append([row])
    return [
        ExplainedModule(
            name=str(group[0]["module"]) or "(network)",
            way=max((str(row["computed"]) for row in group), key=list(WAYS).index),
            received_bytes=sum(int(row["received_bytes"]) for row in group),
            operators=", ".join(f"{row['operator']} {row['shape']} ({row['computed']})" for row in group),
        )
        for group in grouped
    ]


def draw_explanation(rows: Sequence[Mapping[str, Any]], *, label: str, standalone: bool = True) -> str:
    """Return the picture of the rows of `Explanation.to_rows` as SVG."""
    modules = list_modules(rows)
    most = max((module.received_bytes for module in modules), default=0)
    shown = modules[:MAX_LINES]
    body = _draw_legend(modules) + "".join(_draw_module(index, module, most) for index, module in enumerate(shown))
    height = HEADER + LINE * len(shown) + 8
    if len(modules) > MAX_LINES:
        rest = modules[MAX_LINES:]
        received = format_bytes(sum(module.received_bytes for module in rest))
        body += draw_text(0, height + 8, f"and {len(rest)} more modules, which receive {received}")
        height += LINE + 8
    return build_svg(body, WIDTH, height, label, standalone=standalone)


def _draw_legend(modules: Sequence[ExplainedModule]) -> str:
    parts, left = "", 0.0
    for way, (colour, words) in WAYS.items():
        text = f"{words}: {sum(module.way == way for module in modules)}"
        parts += draw_rect(left, 4, CHIP, CHIP, fill=get_series_colour(colour), rx=2)
        parts += draw_text(left + CHIP + 6, 14, text)
        left += CHIP + 30 + LETTER * len(text)
    return parts + draw_text(NAME_WIDTH + 28, HEADER - 9, "received by the busiest rank", fill="var(--muted)")


def _draw_module(index: int, module: ExplainedModule, most: int) -> str:
    top = HEADER + LINE * index
    colour = get_series_colour(WAYS[module.way][0])
    letters = int(NAME_WIDTH / LETTER)
    name = module.name if len(module.name) <= letters else f"…{module.name[1 - letters :]}"
    title = f"{module.name}: {module.operators}; receives {format_bytes(module.received_bytes)}"
    drawn = draw_text(NAME_WIDTH, top + 12, name, text_anchor="end")
    drawn += draw_rect(NAME_WIDTH + 8, top + 2, CHIP, CHIP, title, fill=colour, rx=2)
    if module.received_bytes:
        width = max(1.5, BAR_WIDTH * module.received_bytes / most)
        drawn += draw_rect(NAME_WIDTH + 28, top + 3, width, CHIP - 2, title, fill=colour, rx=1)
        drawn += draw_text(
            NAME_WIDTH + 34 + width, top + 12, format_bytes(module.received_bytes), fill="var(--muted)", font_size=11
        )
    return drawn


def build_explanation_page(rows: Sequence[Mapping[str, Any]], *, title: str, summary: str) -> str:
    """Return an HTML page with the picture and a table of all operators."""
    picture = draw_explanation(rows, label=title, standalone=False)
    heads = ("module", "operator", "shape", "computed", "calls", "received", "why")
    table = build_picture_table(heads, _iter_cells(rows), numbers=(4, 5))
    body = f"<h1>{escape(title)}</h1><p>{escape(summary)}.</p><figure>{picture}</figure><h2>Operators</h2>{table}"
    return build_picture_page(body, title=title)


def _iter_cells(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    for row in rows:
        received = format_bytes(row["received_bytes"]) if row["received_bytes"] else ""
        words = (row["module"], row["operator"], row["shape"], row["computed"], row["calls"])
        yield (*map(str, words), received, str(row.get("why", "")))
