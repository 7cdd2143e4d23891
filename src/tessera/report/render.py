"""Blocks to HTML. With `render_table` the only module that writes markup, and it escapes every string."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from html import escape
from itertools import count
from typing import Any

from tessera.report.blocks import Block, Card, Cards, Facts, Picture, Plot, Section, Table, Text
from tessera.report.render_table import render_table

PLOT_HEIGHT = 420
LONG_FIGURE = 8


def embedded_json(data: object) -> str:
    """JSON that may stand inside a script element: no character of it can end the element or a line."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", text)


def anchor(title: str) -> str:
    """The name by which a section is linked.

    >>> anchor("What needs a look?")
    'what-needs-a-look'
    """
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "section"


class Renderer:
    """Renders the sections of one page; it numbers what needs an id."""

    def __init__(self) -> None:
        self._ids = count(1)

    def section(self, section: Section, name: str, level: int = 2) -> str:
        """A section with its heading, its introduction and its blocks; `name` is its anchor."""
        heading = f'<h{level} id="{name}-title">{escape(section.title)}</h{level}>'
        blocks = [self._block(block, level) for block in section.blocks]
        inner = "\n".join([heading, _paragraphs(section.intro, "intro"), *blocks])
        return f'<section id="{name}" aria-labelledby="{name}-title">{inner}</section>'

    def _block(self, block: Block, level: int) -> str:
        match block:
            case Text():
                body = _paragraphs(block.text)
                return f'<div class="notice {block.tone}">{body}</div>' if block.tone else body
            case Cards():
                return f'<ul class="cards">{"".join(map(_card, block.cards))}</ul>'
            case Facts():
                return _facts(block)
            case Table():
                return render_table(block, f"table-{next(self._ids)}")
            case Plot():
                return _plot(block)
            case Picture():
                drawing = f'<div role="img" aria-label="{escape(block.alt)}">{block.svg}</div>'
                return f'<figure class="picture">{drawing}{_caption(block.caption)}</figure>'
            case Section():
                return self.section(block, f"{anchor(block.title)}-{next(self._ids)}", min(level + 1, 6))


def _paragraphs(text: str, kind: str = "") -> str:
    parts = [part for part in re.split(r"\n\s*\n", text.strip()) if part]
    coded = (re.sub("`([^`]+)`", r"<code>\1</code>", escape(part)) for part in parts)
    mark = f' class="{kind}"' if kind else ""
    return "\n".join(f"<p{mark}>{part}</p>" for part in coded)


def _caption(text: str) -> str:
    return f"<figcaption>{escape(text)}</figcaption>" if text else ""


def _card(card: Card) -> str:
    remark = f"<small>{escape(card.remark)}</small>" if card.remark else ""
    size = "figure long" if len(card.figure) > LONG_FIGURE else "figure"
    return (
        f'<li class="card {card.tone}"><span class="label">{escape(card.label)}</span>'
        f'<strong class="{size}">{escape(card.figure)}</strong>{remark}</li>'
    )


def _facts(block: Facts) -> str:
    pairs = "".join(f"<div><dt>{escape(key)}</dt><dd>{escape(value)}</dd></div>" for key, value in block.facts)
    body = f'<dl class="facts">{pairs}</dl>'
    if block.folded:
        return f"<details><summary>{escape(block.caption)}</summary>{body}</details>"
    return f"<h4>{escape(block.caption)}</h4>{body}" if block.caption else body


def _plot(plot: Plot) -> str:
    height = int(plot.figure.get("layout", {}).get("height", PLOT_HEIGHT))
    label = escape(plot.caption or "plot")
    return (
        f'<figure class="plot">{_caption(plot.caption)}'
        f'<div class="canvas" role="img" aria-label="{label}" style="height:{height}px"></div>'
        f'<script type="application/json">{embedded_json(_displayable(plot.figure))}</script></figure>'
    )


def _displayable(value: Any, key: str = "") -> Any:
    """A figure that is valid JSON and in which Plotly finds no markup, apart from the author's templates."""
    if isinstance(value, Mapping):
        return {str(k): _displayable(v, str(k)) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_displayable(v, key) for v in value]
    if isinstance(value, str) and not key.endswith("template"):
        return escape(value, quote=False)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
