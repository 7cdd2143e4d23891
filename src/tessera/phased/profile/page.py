"""The HTML page of a profile: the timeline of every case and a table of its phases. No scripts, no requests."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from tessera.phased.profile.pass_profile import PassProfile
from tessera.phased.profile.picture import describe_pass, draw_pass
from tessera.report.figures import format_bytes, format_percent, format_rate, format_seconds
from tessera.report.picture_page import build_picture_page, build_picture_table

PAGE_STYLE = """\
h2 { margin-top: 2.2rem; }
figure svg { display: block; width: 100%; height: auto; min-width: 44rem; }
table { margin-top: 0.8rem; }
td:nth-child(2) { max-width: 22rem; overflow: hidden; text-overflow: ellipsis; }
"""
PAGE_INTRO = (
    "One pass through all phases of each case. The ideal of a phase is the longer of its I/O and its compute, each "
    "measured in isolation; the mark shows where a pass would end if every phase reached it. Tinted spans are idle: "
    "the device neither loads nor computes. Hover over a span for details."
)


def build_profile_page(profiles: Mapping[str, PassProfile]) -> str:
    """Return the page as HTML; the keys are the names of the cases."""
    cases = (_render_case(name, profile) for name, profile in profiles.items())
    return build_picture_page(
        "\n".join([f"<h1>Phases</h1>\n<p>{escape(PAGE_INTRO)}</p>", *cases]), title="Phases", style=PAGE_STYLE
    )


def _render_case(name: str, profile: PassProfile) -> str:
    idle = ", ".join(
        f"device {d} {format_percent(profile.get_idle_seconds(d) / profile.seconds)}" for d in profile.devices
    )
    summary = f"{describe_pass(profile)}. Idle: {idle}." if idle else f"{describe_pass(profile)}."
    rows = (format_phase_row(profile, number) for number in range(len(profile.phases)))
    table = build_picture_table(PHASE_HEADINGS, rows, numbers=range(2, len(PHASE_HEADINGS)))
    return (
        f"<section><h2>{escape(name).replace(',', ',<wbr>')}</h2><p>{escape(summary)}</p>"
        f"<figure>{draw_pass(profile, standalone=False)}</figure><figure>{table}</figure></section>"
    )


PHASE_HEADINGS = (
    "phase",
    "layers",
    "loaded",
    "FLOPs / byte",
    "I/O isolated",
    "compute isolated",
    "bound by",
    "I/O",
    "compute",
    "hidden",
    "hand-over",
)


def format_phase_row(profile: PassProfile, number: int) -> list[str]:
    """Return the values of a phase as text, in the order of `PHASE_HEADINGS`."""
    cost, times = profile.phases[number], profile.get_phase_times(number)
    per_byte = cost.flops_per_byte
    return [
        str(number),
        cost.name,
        format_bytes(cost.bytes),
        "" if per_byte is None else format_rate(per_byte, ""),
        format_seconds(cost.load) if cost.bytes else "",
        format_seconds(cost.compute),
        cost.bound if cost.bytes else "",
        format_seconds(times.load) if times.load else "",
        format_seconds(times.compute),
        format_percent(times.hidden / times.load) if times.load else "",
        format_seconds(times.hand_over) if times.hand_over else "",
    ]
