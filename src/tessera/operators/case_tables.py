"""Tables of operator cases in CSV or TOML: operators with shapes, attributes, dtypes and layouts.

A CSV file has one case per row. The column `operator` names the operator; `dtype`, `pass` and `layout` are optional.
Every other column is an input or attribute of the operator, such as `lhs` or `stride`. Shapes are written as `64x64`.

A TOML file has blocks `[[cases]]` with the same fields. `operator` may be a list. The value of an input may be a list
of shapes; lists of several inputs have the same length, and their elements belong together.
"""

from __future__ import annotations

import ast
import csv
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tessera.errors import TesseraError
from tessera.operators.cases import cases
from tessera.operators.catalogue import OPERATORS
from tessera.results.record import Case

TABLE_DIRECTORY = Path(__file__).parent / "data" / "tables"
AXIS_FIELDS = ("dtype", "pass")  # fields that select values of axes
LAYOUTS = ("contiguous", "strided", "channels_last")
BASE_SIZE = "small"  # size that gives the inputs which a row does not name
_SHAPE_PATTERN = re.compile(r"\d+(x\d+)+")


def list_tables() -> list[str]:
    """Return the names of the tables that Tessera ships."""
    return sorted(path.stem for path in TABLE_DIRECTORY.glob("*.toml"))


def load_table_cases(name: str, *, seed: int = 0, **axes: Sequence[str]) -> list[Case]:
    """Return the cases of a table, given by its name or path; `axes` replaces dtypes, passes and backends."""
    selected = []
    for place, row in _iter_rows(name):
        try:
            selected += _make_cases(row, seed, axes)
        except TesseraError as error:
            raise TesseraError(f"{place}: {error}") from None
    if not selected:
        raise TesseraError("the table has no cases", got=name)
    return list({case.key: case for case in selected}.values())


def _iter_rows(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of a table, each with its place in the file."""
    path = TABLE_DIRECTORY / f"{name}.toml" if name in list_tables() else Path(name)
    try:
        if path.suffix == ".csv":
            with path.open(newline="") as stream:
                rows = list(csv.DictReader(stream))
            for number, cells in enumerate(rows, 2):
                yield f"{name}, line {number}", _parse_cells(cells, f"{name}, line {number}")
            return
        data = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise TesseraError(
            "unknown table", got=name, allowed=[*list_tables(), "a path to a CSV or TOML file"]
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError, csv.Error) as error:
        raise TesseraError(f"{name} is not a table of cases: {error}") from None
    blocks = data.get("cases", [])
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise TesseraError(f"{name}: cases must be TOML tables", do="write [[cases]] before each block")
    for number, block in enumerate(blocks, 1):
        yield f"{name}, block {number}", block


def _parse_cells(cells: Mapping[str | None, Any], place: str) -> dict[str, Any]:
    """Parse the cells of a CSV row; empty cells are left out."""
    if None in cells:
        raise TesseraError(f"{place} has more cells than the header")
    return {name: _parse_cell(name, text.strip()) for name, text in cells.items() if name and text and text.strip()}


def _parse_cell(name: str, text: str) -> Any:
    """Parse a shape such as `64x64`, a Python literal, or a word.

    >>> _parse_cell("lhs", "64x128"), _parse_cell("stride", "2"), _parse_cell("layout", "strided")
    ([64, 128], 2, 'strided')
    """
    if name in ("operator", "layout", *AXIS_FIELDS):
        return text
    if _SHAPE_PATTERN.fullmatch(text):
        return [int(part) for part in text.split("x")]
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return list(value) if isinstance(value, tuple) else value


def _make_cases(row: Mapping[str, Any], seed: int, axes: Mapping[str, Sequence[str]]) -> list[Case]:
    fields = dict(row)
    operators = fields.pop("operator", None)
    layout = fields.pop("layout", LAYOUTS[0])
    if not operators:
        raise TesseraError("the row names no operator")
    if layout not in LAYOUTS:
        raise TesseraError("unknown layout", got=layout, allowed=LAYOUTS)
    given = {name: _make_list(fields.pop(name)) for name in AXIS_FIELDS if name in fields} | dict(axes)
    passes = given.pop("pass", ())
    selected: list[Case] = []
    for operator in _make_list(operators):
        name = _find_variant(operator, layout)
        if layout == "strided":
            given["skew"] = ["strided"]
        selected += cases([name], size=[BASE_SIZE], passes=passes, inputs=fields, seed=seed, **given)
    return selected


def _find_variant(operator: str, layout: str) -> str:
    """Return the operator of a layout: channels-last operators have names of their own."""
    if layout != "channels_last":
        return operator
    name = f"{operator}_channels_last"
    if name not in OPERATORS:
        allowed = [one.removesuffix("_channels_last") for one in OPERATORS if one.endswith("_channels_last")]
        raise TesseraError("the operator has no channels-last variant", got=operator, allowed=allowed)
    return name


def _make_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [value]
