"""The page of a profile: for every case its timeline, and its phases in numbers. No script, nothing to fetch."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from tessera.phased.profile.pass_profile import PassProfile
from tessera.phased.profile.picture import describe, pass_svg
from tessera.phased.profile.rows import HEADS, phase_row
from tessera.report.figures import format_percent
from tessera.report.picture_page import picture_page, picture_table

STYLE = """\
h2 { margin-top: 2.2rem; }
figure svg { display: block; width: 100%; height: auto; min-width: 44rem; }
table { margin-top: 0.8rem; }
td:nth-child(2) { max-width: 22rem; overflow: hidden; text-overflow: ellipsis; }
"""
INTRO = (
    "One pass through all phases of each case. A phase's ideal is the longer of its I/O and its compute, each taken by "
    "itself; the mark shows where a pass would end if every phase reached it. Tinted stretches are idle: the device "
    "neither loads nor computes. Point at a stretch to see what it is."
)


def profile_page(profiles: Mapping[str, PassProfile]) -> str:
    """The page as text; cases are named by the keys."""
    cases = (_case(name, profile) for name, profile in profiles.items())
    return picture_page("\n".join([f"<h1>Phases</h1>\n<p>{escape(INTRO)}</p>", *cases]), title="Phases", style=STYLE)


def _case(name: str, profile: PassProfile) -> str:
    idle = ", ".join(f"device {d} {format_percent(profile.idle(d) / profile.seconds)}" for d in profile.devices)
    said = f"{describe(profile)}. Idle: {idle}." if idle else f"{describe(profile)}."
    rows = (phase_row(profile, number) for number in range(len(profile.parts)))
    table = picture_table(HEADS, rows, numbers=range(2, len(HEADS)))
    return (
        f"<section><h2>{escape(name).replace(',', ',<wbr>')}</h2><p>{escape(said)}</p>"
        f"<figure>{pass_svg(profile, standalone=False)}</figure><figure>{table}</figure></section>"
    )
