"""What the pictures have in common: colours that follow the reader's theme, and elements with escaped text."""

from __future__ import annotations

from html import escape

# The colours of the report's style sheet, light and dark: inside a report its own are used.
SERIES = (
    ("#2f6fdb", "#6aa6ff"),
    ("#d9652b", "#ff9a63"),
    ("#1d8a6b", "#4fcda6"),
    ("#8a4fc9", "#c39bff"),
    ("#b08900", "#e6c34d"),
    ("#c2417c", "#ff86b7"),
)
PAPER = ("#ffffff", "#171b21")
INK = ("#1a2029", "#e7eaef")
MUTED = ("#596373", "#9aa5b4")
FONT = "system-ui, 'Segoe UI', Roboto, 'Noto Sans', 'Helvetica Neue', Arial, sans-serif"


def series(number: int) -> str:
    """A colour that stands apart from its neighbours.

    >>> series(0), series(6)
    ('var(--series-1)', 'var(--series-1)')
    """
    return f"var(--series-{number % len(SERIES) + 1})"


def document(body: str, width: float, height: float, label: str, *, standalone: bool) -> str:
    """A whole SVG; one that stands alone brings its colours along, for light and for dark."""
    style = f"<style>{style_sheet('svg')}</style>" if standalone else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img" aria-label="{escape(label)}" fill="currentColor" '
        f'font-family="{escape(FONT)}" font-size="12">{style}{body}</svg>'
    )


def style_sheet(root: str) -> str:
    """The colours as variables of an element, in light and, where the reader prefers it, in dark."""
    light, dark = (
        "".join(f"--series-{n}: {pair[tone]}; " for n, pair in enumerate(SERIES, 1))
        + f"--muted: {MUTED[tone]}; color: {INK[tone]}; background: {PAPER[tone]};"
        for tone in (0, 1)
    )
    alike = f"{root} {{ max-width: 100%; height: auto; {light} }}"
    return f"{alike} @media (prefers-color-scheme: dark) {{ {root} {{ {dark} }} }}"


def rect(x: float, y: float, width: float, height: float, title: str = "", **attributes: object) -> str:
    """A box; its title shows on pointing at it.

    >>> rect(0, 1, 2, 3, "a < b", rx=2)
    '<rect x="0.0" y="1.0" width="2.0" height="3.0" rx="2"><title>a &lt; b</title></rect>'
    """
    inner = f"<title>{escape(title)}</title>" if title else ""
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f"<rect {place}{written(attributes)}>{inner}</rect>"


def text(x: float, y: float, words: str, **attributes: object) -> str:
    """Words at a place."""
    return f'<text x="{x:.1f}" y="{y:.1f}"{written(attributes)}>{escape(words)}</text>'


def written(attributes: dict[str, object]) -> str:
    """Attributes as they stand in an element; a name's underscores are hyphens there."""
    return "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(str(value))}"' for name, value in attributes.items()
    )
