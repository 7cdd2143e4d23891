"""The page of a profile: for every case its timeline, and its phases in numbers. No script, nothing to fetch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from string import Template

from tessera.phased.profile.pass_profile import PassProfile
from tessera.phased.profile.picture import describe, pass_svg
from tessera.phased.profile.rows import HEADS, phase_row
from tessera.report.figures import format_percent
from tessera.report.svg import FONT, style_sheet

STYLE = """\
body { margin: 0 auto; padding: 1.5rem; max-width: 76rem; font: 400 0.95rem/1.5 $font; }
h1 { font-size: 1.4rem; margin: 0 0 0.3rem; }
h2 { font-size: 1.1rem; margin: 2.2rem 0 0.2rem; overflow-wrap: anywhere; }
p { color: var(--muted); margin: 0.2rem 0 0.8rem; max-width: 70rem; }
.drawing, .phases { overflow-x: auto; }
.drawing svg { background: none; display: block; width: 100%; height: auto; min-width: 44rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.88rem; margin-top: 0.8rem; }
th { color: var(--muted); font-weight: 500; vertical-align: bottom; }
th, td {
  padding: 0.15rem 0 0.15rem 1.1rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid color-mix(in srgb, currentColor 14%, transparent);
}
th:nth-child(-n+2), td:nth-child(-n+2) { text-align: left; padding-left: 0; padding-right: 0.6rem; }
td:nth-child(2) { max-width: 22rem; overflow: hidden; text-overflow: ellipsis; }
"""

PAGE = Template("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>$title</title>
<style>:root { color-scheme: light dark; } $colours $style</style>
</head>
<body>
<h1>$title</h1>
<p>$intro</p>
$cases
</body>
</html>
""")

INTRO = (
    "One pass through all phases of each case. A phase's ideal is the longer of its I/O and its compute, each taken by "
    "itself; the mark shows where a pass would end if every phase reached it. Tinted stretches are idle: the device "
    "neither loads nor computes. Point at a stretch to see what it is."
)


def profile_page(profiles: Mapping[str, PassProfile], title: str = "Phases") -> str:
    """The page as text; cases are named by the keys."""
    return PAGE.substitute(
        title=escape(title),
        intro=escape(INTRO),
        colours=style_sheet("body"),
        style=Template(STYLE).substitute(font=FONT),
        cases="\n".join(_case(name, profile) for name, profile in profiles.items()),
    )


def _case(name: str, profile: PassProfile) -> str:
    idle = ", ".join(f"device {d} {format_percent(profile.idle(d) / profile.seconds)}" for d in profile.devices)
    said = f"{describe(profile)}. Idle: {idle}." if idle else f"{describe(profile)}."
    return (
        f'<section><h2>{escape(name).replace(",", ",<wbr>")}</h2><p>{escape(said)}</p><div class="drawing">'
        f'{pass_svg(profile, standalone=False)}</div><div class="phases">{_table(profile)}</div></section>'
    )


def _table(profile: PassProfile) -> str:
    rows = "".join(_row(phase_row(profile, number), "td") for number in range(len(profile.parts)))
    return f"<table><thead>{_row(HEADS, 'th')}</thead><tbody>{rows}</tbody></table>"


def _row(cells: Iterable[str], kind: str) -> str:
    return f"<tr>{''.join(f'<{kind}>{escape(cell)}</{kind}>' for cell in cells)}</tr>"
