"""A page around pictures, for a plan or a profile that is read by itself: no Plotly, and nothing to fetch.

It has the report's colours, light and dark. Its content security policy names the one script it may have been written
with, so that nothing else can run in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from html import escape
from string import Template

from tessera.report.policy import content_policy
from tessera.report.svg import FONT, style_sheet

STYLE = """\
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
PAGE = Template("""\
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


def picture_page(body: str, *, title: str, style: str = "", script: str = "") -> str:
    """The page as text. `body` is HTML whose strings are escaped; `style` adds to the page's own and may change it."""
    return PAGE.substitute(
        policy=content_policy(script) if script else content_policy(),
        title=escape(title),
        colours=style_sheet("body"),
        style=Template(STYLE).substitute(font=FONT) + style,
        body=body,
        script=f"<script>{script}</script>\n" if script else "",
    )


def picture_table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Collection[int] = ()) -> str:
    """A plain table; the columns at these places hold numbers."""
    body = "".join(_row(row, "td", numbers) for row in rows)
    return f"<table><thead>{_row(heads, 'th', numbers)}</thead><tbody>{body}</tbody></table>"


def _row(cells: Sequence[str], tag: str, numbers: Collection[int]) -> str:
    """
    >>> _row(["a < b", "3"], "td", [1])
    '<tr><td>a &lt; b</td><td class="number">3</td></tr>'
    """
    kinds = (' class="number"' if place in numbers else "" for place in range(len(cells)))
    inner = "".join(f"<{tag}{kind}>{escape(cell)}</{tag}>" for kind, cell in zip(kinds, cells, strict=True))
    return f"<tr>{inner}</tr>"
