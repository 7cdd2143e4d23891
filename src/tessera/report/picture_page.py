"""A standalone HTML page with pictures of a plan or a profile, without Plotly and without network requests.

The page has the report's light and dark colours. Its content security policy allows only the script that the page was
created with.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from html import escape
from string import Template

from tessera.report.render import make_content_policy
from tessera.report.svg import FONT_FAMILY, build_style_sheet

PAGE_STYLE = """\
:root { color-scheme: light dark; }
body { margin: 0 auto; padding: 1.5rem; max-width: 76rem; font: 400 0.95rem/1.5 $font; }
h1 { font-size: 1.3rem; margin: 0 0 0.3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 1.6rem 0 0.4rem; overflow-wrap: anywhere; }
p { color: var(--muted); margin: 0.2rem 0 0.8rem; max-width: 70rem; }
figure { margin: 0; overflow-x: auto; }
figure svg { background: none; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.9rem; }
th { color: var(--muted); font-weight: 500; text-align: left; vertical-align: bottom; }
th, td {
  padding: 0.15rem 0.9rem 0.15rem 0; white-space: nowrap;
  border-bottom: 1px solid color-mix(in srgb, currentColor 14%, transparent);
}
table + table { margin-top: 0.9rem; }
.number { text-align: right; }
"""
PAGE_TEMPLATE = Template("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="$policy">
<title>$title</title>
<style>$colours
$style</style>
</head>
<body>
$body
$script</body>
</html>
""")


def build_picture_page(body: str, *, title: str, style: str = "", script: str = "") -> str:
    """Build the page as HTML. `body` is HTML with escaped strings; `style` is CSS appended to the default style."""
    return PAGE_TEMPLATE.substitute(
        policy=make_content_policy(script) if script else make_content_policy(),
        title=escape(title),
        colours=build_style_sheet("body"),
        style=Template(PAGE_STYLE).substitute(font=FONT_FAMILY) + style,
        body=body,
        script=f"<script>{script}</script>\n" if script else "",
    )


def build_picture_table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Collection[int] = ()) -> str:
    """Build an HTML table without scripts; `numbers` are the indices of right-aligned (number) columns."""
    body = "".join(_format_row(row, "td", numbers) for row in rows)
    return f"<table><thead>{_format_row(heads, 'th', numbers)}</thead><tbody>{body}</tbody></table>"


def _format_row(cells: Sequence[str], tag: str, numbers: Collection[int]) -> str:
    """Format one row of an HTML table; `tag` is `td` or `th`.

    >>> _format_row(["a < b", "3"], "td", [1])
    '<tr><td>a &lt; b</td><td class="number">3</td></tr>'
    """
    kinds = (' class="number"' if place in numbers else "" for place in range(len(cells)))
    inner = "".join(f"<{tag}{kind}>{escape(cell)}</{tag}>" for kind, cell in zip(kinds, cells, strict=True))
    return f"<tr>{inner}</tr>"
