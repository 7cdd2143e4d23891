"""What a section of the report is made of: text, cards, facts, tables, plots and pictures, as plain data.

A feature fills its own section with these and never writes HTML. Every string is shown as it stands: the page
escapes all of them, so a stored name cannot become markup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from xml.etree import ElementTree

Tone = Literal["", "good", "warn", "bad", "muted"]


@dataclass(frozen=True, slots=True)
class Text:
    """Paragraphs parted by blank lines; words between backticks are set as code. A tone makes it a notice."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Card:
    """One key figure, with what it counts and a short remark."""

    label: str
    figure: str
    remark: str = ""
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Cards:
    """Key figures side by side."""

    cards: Sequence[Card]


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and their values, such as an environment; `folded` ones open with a click."""

    facts: Sequence[tuple[str, str]]
    caption: str = ""
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """A value of a table as it is shown, and the number it sorts by. `hint` shows on pointing at it."""

    text: str
    value: float | None = None
    tone: Tone = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A heading. `quick` offers the column's values as one-click filters; `hint` explains the heading.

    A column of kind "number" is aligned to the right and sorts by its cells' `value`; "prose" wraps its text.
    """

    title: str
    kind: Literal["text", "number", "prose"] = "text"
    quick: bool = False
    hint: str = ""


Heading = Column | str
Row = Sequence[Cell | str]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows that can be sorted by any heading and filtered by any word."""

    columns: Sequence[Heading]
    rows: Sequence[Row]
    caption: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            assert len(row) == len(self.columns), f"{len(self.columns)} headings over {row}"


@dataclass(frozen=True, slots=True)
class Plot:
    """A Plotly figure as JSON (`data` and `layout`), drawn in the colours and fonts of the page's theme.

    A colour may be written `var(--name)` with a name of the style sheet (`--series-1` to `--series-6`,
    `--good`, `--warn`, `--bad`, `--muted`): it follows the theme. Strings are shown as they stand; only
    `hovertemplate` and `texttemplate` may hold Plotly's own markup.
    """

    figure: Mapping[str, Any]
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """An SVG drawing; `alt` says what it shows. `currentColor` and `var(--name)` follow the theme."""

    svg: str
    alt: str
    caption: str = ""

    def __post_init__(self) -> None:
        root = ElementTree.fromstring(self.svg)
        assert root.tag.endswith("svg"), f"a picture is an svg element, got {root.tag}"
        for element in root.iter():
            name = str(element.tag).rpartition("}")[2]
            assert name not in ("script", "foreignObject", "style"), f"a picture must not hold <{name}>"
            for key in element.attrib:
                assert not key.startswith("on"), f"a picture must not hold handlers, got {key}"


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page with its own heading; sections inside sections get smaller headings."""

    title: str
    intro: str = ""
    blocks: Sequence[Text | Cards | Facts | Table | Plot | Picture | Section] = ()


Block = Text | Cards | Facts | Table | Plot | Picture | Section
