"""SVG helpers for pictures: colours that follow the theme, and elements with escaped text."""

from __future__ import annotations

from html import escape

# Light and dark colours of the report's style sheet, for drawings outside of a report.
SERIES_COLOURS = (
    ("#2f6fdb", "#6aa6ff"),
    ("#d9652b", "#ff9a63"),
    ("#1d8a6b", "#4fcda6"),
    ("#8a4fc9", "#c39bff"),
    ("#b08900", "#e6c34d"),
    ("#c2417c", "#ff86b7"),
)
BACKGROUND_COLOURS = ("#ffffff", "#171b21")
TEXT_COLOURS = ("#1a2029", "#e7eaef")
MUTED_COLOURS = ("#596373", "#9aa5b4")
FONT_FAMILY = "system-ui, 'Segoe UI', Roboto, 'Noto Sans', 'Helvetica Neue', Arial, sans-serif"


def get_series_colour(number: int) -> str:
    """Return the CSS colour of a data series; six colours repeat.

    >>> get_series_colour(0), get_series_colour(6)
    ('var(--series-1)', 'var(--series-1)')
    """
    return f"var(--series-{number % len(SERIES_COLOURS) + 1})"


def build_svg(body: str, width: float, height: float, label: str, *, standalone: bool) -> str:
    """Return an SVG document; a standalone document contains the colours of the light and the dark theme."""
    style = f"<style>{build_style_sheet('svg')}</style>" if standalone else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img" aria-label="{escape(label)}" fill="currentColor" '
        f'font-family="{escape(FONT_FAMILY)}" font-size="12">{style}{body}</svg>'
    )


def build_style_sheet(root: str) -> str:
    """Return CSS that defines the theme colours as variables of the element `root`, light and dark."""
    light, dark = (
        "".join(f"--series-{n}: {pair[tone]}; " for n, pair in enumerate(SERIES_COLOURS, 1))
        + f"--muted: {MUTED_COLOURS[tone]}; color: {TEXT_COLOURS[tone]}; background: {BACKGROUND_COLOURS[tone]};"
        for tone in (0, 1)
    )
    alike = f"{root} {{ max-width: 100%; height: auto; {light} }}"
    return f"{alike} @media (prefers-color-scheme: dark) {{ {root} {{ {dark} }} }}"


def draw_rect(x: float, y: float, width: float, height: float, title: str = "", **attributes: object) -> str:
    """Return an SVG rectangle with an optional tooltip `title`.

    >>> draw_rect(0, 1, 2, 3, "a < b", rx=2)
    '<rect x="0.0" y="1.0" width="2.0" height="3.0" rx="2"><title>a &lt; b</title></rect>'
    """
    inner = f"<title>{escape(title)}</title>" if title else ""
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f"<rect {place}{format_attributes(attributes)}>{inner}</rect>"


def draw_text(x: float, y: float, words: str, **attributes: object) -> str:
    """Return an SVG text element."""
    return f'<text x="{x:.1f}" y="{y:.1f}"{format_attributes(attributes)}>{escape(words)}</text>'


def format_attributes(attributes: dict[str, object]) -> str:
    """Format the attributes of an SVG element; underscores in names become hyphens."""
    return "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(str(value))}"' for name, value in attributes.items()
    )
