"""The blocks of a report section as plain data: text, cards, facts, tables, plots and pictures.

A feature fills its section with blocks and never writes HTML. The page escapes every string, so a stored name cannot
become markup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar
from xml.etree import ElementTree

Tone = Literal["", "good", "warn", "bad", "muted"]


@dataclass(frozen=True, slots=True)
class Text:
    """Paragraphs separated by blank lines; words in backticks are code. With a `tone`, the text is a notice."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Card:
    """A key value with a label and a short remark."""

    label: str
    figure: str
    remark: str = ""
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Cards:
    """A row of cards."""

    cards: Sequence[Card]


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values, such as an environment; `folded` facts are collapsed until clicked."""

    facts: Sequence[tuple[str, str]]
    caption: str = ""
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table: its text, the number it sorts by, and a `hint` shown as a tooltip."""

    text: str
    value: float | None = None
    tone: Tone = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. On the page, `quick` adds one-click filters for its values, and `hint` is its tooltip.

    A "number" column is right-aligned and sorts by the `value` of its cells; "prose" wraps its text.
    """

    title: str
    kind: Literal["text", "number", "prose"] = "text"
    quick: bool = False
    hint: str = ""


Heading = Column | str
Row = Sequence[Any]  # cells, texts, numbers, or None for an empty cell


@dataclass(frozen=True, slots=True)
class Table:
    """A table; on the page it can be sorted by any column and filtered by words."""

    columns: Sequence[Heading]
    rows: Sequence[Row]
    caption: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            assert len(row) == len(self.columns), f"{len(self.columns)} headings over {row}"


T = TypeVar("T")
Columns = Mapping[Heading, Callable[[T], Any]]  # heading of each column -> function that returns the cell of an item


def tabulate(columns: Columns[T], items: Iterable[T], caption: str = "") -> Table:
    """Build a table with one row per item.

    >>> tabulate({"name": str, Column("length", "number"): len}, ["a", "bcd"]).rows
    [['a', 1], ['bcd', 3]]
    """
    return Table(list(columns), [[cell(item) for cell in columns.values()] for item in items], caption)


@dataclass(frozen=True, slots=True)
class Plot:
    """A Plotly figure as JSON (`data` and `layout`), drawn in the colours and fonts of the page's theme.

    A colour may be written `var(--name)` with a name of the style sheet (`--series-1` to `--series-6`,
    `--good`, `--warn`, `--bad`, `--muted`): it follows the theme. Strings are shown literally; only
    `hovertemplate` and `texttemplate` may contain Plotly's markup.
    """

    figure: Mapping[str, Any]
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """An SVG drawing; `alt` is its text alternative. `currentColor` and `var(--name)` follow the theme."""

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
class Statement:
    """A sentence with a label, a small picture, and the command that shows more."""

    text: str
    command: str = ""
    picture: Picture | None = None
    label: str = ""


@dataclass(frozen=True, slots=True)
class Statements:
    """A list of statements, side by side where there is room."""

    statements: Sequence[Statement]


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page with its own heading; nested sections get smaller headings."""

    title: str
    intro: str = ""
    blocks: Sequence[Block] = ()


Block = Text | Cards | Facts | Table | Plot | Picture | Statements | Section
