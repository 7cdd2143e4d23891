"""A base class for results that are tables: plain rows, a pandas DataFrame, and HTML for notebooks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from tessera.errors import MissingExtra

if TYPE_CHECKING:
    import pandas


class Tabular:
    """The base class of a result with rows. A subclass implements `to_rows`; pandas and HTML output use it."""

    __slots__ = ()

    def to_rows(self) -> list[dict[str, Any]]:
        """Return one dict per row, with plain values; keys are the column names."""
        raise NotImplementedError

    def to_pandas(self) -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame; requires the extra `pandas`."""
        try:
            import pandas
        except ImportError:
            raise MissingExtra("pandas", "pandas") from None
        return pandas.DataFrame(self.to_rows())

    def _repr_html_(self) -> str:
        return render_html(self.to_rows())


def render_html(rows: list[dict[str, Any]]) -> str:
    """Render rows as an HTML table, with all text escaped.

    >>> render_html([{"case": "<a>", "time": 0.00123456}])
    '<table><thead><tr><th>case</th><th>time</th></tr></thead><tbody><tr><td>&lt;a&gt;</td><td>0.001235</td></tr></tbody></table>'
    """
    columns = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_format_cell(row.get(name)))}</td>" for name in columns) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _format_cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
