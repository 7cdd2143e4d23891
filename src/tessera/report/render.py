"""Rendering of report blocks as HTML. All strings are escaped here."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import count
from typing import Any

from tessera.report.blocks import (
    Block,
    Card,
    Cards,
    Cell,
    Column,
    Facts,
    Picture,
    Plot,
    Section,
    Statement,
    Statements,
    Table,
    Text,
)

DEFAULT_PLOT_HEIGHT_PIXELS = 420
LONG_CARD_FIGURE_LENGTH = 8


def dump_embedded_json(data: object) -> str:
    """Return JSON that is safe inside a script element: it cannot end the element or a JavaScript line."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&\u2028\u2029]", lambda match: f"\\u{ord(match[0]):04x}", text)


def make_anchor(title: str) -> str:
    """Return the HTML anchor of a section title.

    >>> make_anchor("What needs a look?")
    'what-needs-a-look'
    """
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "section"


class Renderer:
    """Renderer of the sections of one page; it numbers the elements that need an id."""

    def __init__(self) -> None:
        self._ids = count(1)

    def render_section(self, section: Section, name: str, level: int = 2) -> str:
        """Render a section with its heading, introduction and blocks; `name` is its anchor."""
        heading = f'<h{level} id="{name}-title">{escape(section.title)}</h{level}>'
        blocks = [self._render_block(block, level) for block in section.blocks]
        inner = "\n".join([heading, _render_paragraphs(section.intro, "intro"), *blocks])
        return f'<section id="{name}" aria-labelledby="{name}-title">{inner}</section>'

    def _render_block(self, block: Block, level: int) -> str:
        match block:
            case Text():
                body = _render_paragraphs(block.text)
                return f'<div class="notice {block.tone}">{body}</div>' if block.tone else body
            case Cards():
                return f'<ul class="cards">{"".join(map(_render_card, block.cards))}</ul>'
            case Facts():
                return _render_facts(block)
            case Table():
                return render_table(block, f"table-{next(self._ids)}")
            case Plot():
                return _render_plot(block)
            case Picture():
                drawing = f'<div role="img" aria-label="{escape(block.alt)}">{block.svg}</div>'
                return f'<figure class="picture">{drawing}{_render_caption(block.caption)}</figure>'
            case Statements():
                return f'<ul class="statements">{"".join(map(_render_statement, block.statements))}</ul>'
            case Section():
                return self.render_section(block, f"{make_anchor(block.title)}-{next(self._ids)}", min(level + 1, 6))


def _render_paragraphs(text: str, css_class: str = "") -> str:
    parts = [part for part in re.split(r"\n\s*\n", text.strip()) if part]
    coded = (re.sub("`([^`]+)`", r"<code>\1</code>", escape(part)) for part in parts)
    mark = f' class="{css_class}"' if css_class else ""
    return "\n".join(f"<p{mark}>{part}</p>" for part in coded)


def _render_caption(text: str) -> str:
    return f"<figcaption>{escape(text)}</figcaption>" if text else ""


def _render_card(card: Card) -> str:
    remark = f"<small>{escape(card.remark)}</small>" if card.remark else ""
    size = "figure long" if len(card.figure) > LONG_CARD_FIGURE_LENGTH else "figure"
    return (
        f'<li class="card {card.tone}"><span class="label">{escape(card.label)}</span>'
        f'<strong class="{size}">{escape(card.figure)}</strong>{remark}</li>'
    )


def _render_statement(statement: Statement) -> str:
    label = f'<span class="label">{escape(statement.label)}</span>' if statement.label else ""
    picture = statement.picture
    drawing = f'<div role="img" aria-label="{escape(picture.alt)}">{picture.svg}</div>' if picture else ""
    # Options are not broken at their hyphens.
    words = " ".join(f"<span>{escape(word)}</span>" for word in statement.command.split())
    command = f"<code>{words}</code>" if words else ""
    return f"<li>{label}{_render_paragraphs(statement.text)}{drawing}{command}</li>"


def _render_facts(block: Facts) -> str:
    pairs = "".join(f"<div><dt>{escape(key)}</dt><dd>{escape(value)}</dd></div>" for key, value in block.facts)
    body = f'<dl class="facts">{pairs}</dl>'
    if block.folded:
        return f"<details><summary>{escape(block.caption)}</summary>{body}</details>"
    return f"<h4>{escape(block.caption)}</h4>{body}" if block.caption else body


def _render_plot(plot: Plot) -> str:
    height = int(plot.figure.get("layout", {}).get("height", DEFAULT_PLOT_HEIGHT_PIXELS))
    label = escape(plot.caption or "plot")
    return (
        f'<figure class="plot">{_render_caption(plot.caption)}'
        f'<div class="canvas" role="img" aria-label="{label}" style="height:{height}px"></div>'
        f'<script type="application/json">{dump_embedded_json(_make_displayable(plot.figure))}</script></figure>'
    )


def _make_displayable(value: Any, key: str = "") -> Any:
    """Return a Plotly figure as valid JSON with escaped strings; template strings keep their markup."""
    if isinstance(value, Mapping):
        return {str(k): _make_displayable(v, str(k)) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_make_displayable(v, key) for v in value]
    if isinstance(value, str) and not key.endswith("template"):
        return escape(value, quote=False)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


# Rows shown initially; the others appear on demand, so that long tables open quickly.
INITIAL_ROWS = 50
# Minimum number of rows of a table with filters.
MIN_FILTERED_ROWS = 6
# Maximum number of values of a quick filter with buttons; with more values it is a drop-down list.
MAX_FILTER_BUTTONS = 6


def render_table(table: Table, name: str) -> str:
    """Render a table with caption and filters, readable without scripts. `name` is the HTML id of the table."""
    columns = [Column(c) if isinstance(c, str) else c for c in table.columns]
    rows = [[_to_cell(value) for value in row] for row in table.rows]
    head = "".join(map(_render_heading, columns))
    body = "\n".join(_render_row(columns, row, number >= INITIAL_ROWS) for number, row in enumerate(rows))
    label = f'aria-labelledby="{name}-caption"'
    more = "" if len(rows) > INITIAL_ROWS else " hidden"
    return (
        f'<figure class="table" id="{name}">'
        f'<figcaption id="{name}-caption">{escape(table.caption)}</figcaption>{_render_filters(columns, rows)}'
        f'<div class="scroll" tabindex="0" role="region" {label}>'
        f"<table {label}><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
        f'<button type="button" class="more"{more}>Show more rows</button></figure>'
    )


def _to_cell(value: Any) -> Cell:
    """Convert text, a number or None to a cell."""
    if isinstance(value, Cell):
        return value
    return Cell("" if value is None else str(value), value if isinstance(value, int | float) else None)


def _render_heading(column: Column) -> str:
    hint = f' title="{escape(column.hint)}"' if column.hint else ""
    return (
        f'<th scope="col" class="{column.kind}" aria-sort="none"{hint}>'
        f'<button type="button">{escape(column.title)}</button></th>'
    )


def _render_row(columns: Sequence[Column], row: Sequence[Cell], hidden: bool) -> str:
    pairs = zip(columns, row, strict=True)
    cells = "".join(_render_cell(column, cell, heads=number == 0) for number, (column, cell) in enumerate(pairs))
    return f"<tr{' hidden' if hidden else ''}>{cells}</tr>"


def _render_cell(column: Column, cell: Cell, *, heads: bool) -> str:
    text = escape(cell.text)
    if heads:
        # Names of cases are long and have no spaces: allow breaks between parameters.
        text = text.replace("[", "<wbr>[").replace(",", ",<wbr>")
    if cell.tone and text:
        text = f'<span class="badge {cell.tone}">{text}</span>'
    marks = "" if column.kind == "text" else f' class="{column.kind}"'
    if cell.value is not None and math.isfinite(cell.value):
        marks += f' data-v="{cell.value!r}"'
    if cell.hint:
        marks += f' title="{escape(cell.hint)}"'
    return f'<th scope="row"{marks}>{text}</th>' if heads else f"<td{marks}>{text}</td>"


def _render_filters(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> str:
    if len(rows) < MIN_FILTERED_ROWS:
        return ""
    quick = "".join(_iter_quick_filters(columns, rows))
    return (
        '<div class="tools"><input type="search" placeholder="Filter rows" aria-label="Filter rows by words">'
        f'{quick}<output aria-live="polite">{len(rows):,} rows</output></div>'
    )


def _iter_quick_filters(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> Iterator[str]:
    for index, column in enumerate(columns):
        counts = Counter(row[index].text for row in rows if row[index].text)
        if column.quick and len(counts) > 1:
            yield (
                _render_buttons(column, index, counts)
                if len(counts) <= MAX_FILTER_BUTTONS
                else _render_drop_down(column, index, counts)
            )


def _render_buttons(column: Column, index: int, counts: Counter[str]) -> str:
    buttons = "".join(
        f'<button type="button" aria-pressed="false" data-value="{escape(text)}">'
        f"{escape(text)} <small>{number:,}</small></button>"
        for text, number in counts.most_common()
    )
    label = escape(column.title)
    return f'<div class="chips" role="group" aria-label="{label}" data-column="{index}">{buttons}</div>'


def _render_drop_down(column: Column, index: int, counts: Counter[str]) -> str:
    options = "".join(
        f'<option value="{escape(text)}">{escape(text)} ({counts[text]:,})</option>' for text in sorted(counts)
    )
    label = escape(column.title)
    return (
        f'<select aria-label="{label}" data-column="{index}"><option value="">{label}: all</option>{options}</select>'
    )


def make_content_policy(*scripts: str) -> str:
    """Return the content security policy of a page with these scripts.

    >>> make_content_policy()
    "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'"
    """
    rules = ["default-src 'none'", "img-src data: blob:", "style-src 'unsafe-inline'"]
    if scripts:
        digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
        rules.append(" ".join(["script-src", *(f"'sha256-{digest}'" for digest in digests)]))
    return "; ".join(rules)
