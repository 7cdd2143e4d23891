"""Tests of the charts of findings and of statements on the page."""

from __future__ import annotations

import re

from tessera.report.blocks import Section, Statements
from tessera.report.finding_pictures import BAR_AREA_WIDTH, WIDTH, draw_bars, make_statement
from tessera.report.findings import Bar, Finding
from tessera.report.render import Renderer

FINDING = Finding(
    feature="ops",
    text="`a` < b by 2.00x.",
    command="tessera ops a --size small",
    bars=(
        Bar(label="fast & small", value=1.0, text="1.00 s", low=0.9, high=1.1),
        Bar(label="slow", value=2.0, text="2.00 s"),
        Bar(label="tiny", value=1e-9, text="1.00 ns"),
    ),
)


def test_bars_are_drawn_to_scale_and_stay_within_the_picture() -> None:
    svg = draw_bars(FINDING).svg
    bars = [float(width) for width in re.findall(r'width="([0-9.]+)" height="10.0"', svg)]
    assert bars == [BAR_AREA_WIDTH / 2, BAR_AREA_WIDTH, 2.0]
    assert all(float(x) < WIDTH - 60 for x in re.findall(r'<text x="([0-9.]+)"', svg))
    assert "fast &amp; small" in svg


def test_a_statement_is_escaped_and_its_options_are_not_broken() -> None:
    section = Section("Findings", "", [Statements([make_statement(FINDING, "Operators")])])
    html = Renderer().render_section(section, "findings")
    assert "<code>a</code> &lt; b by 2.00x." in html
    assert "<span>--size</span> <span>small</span>" in html
    assert '<span class="label">Operators</span>' in html


def test_a_finding_without_bars_has_no_picture() -> None:
    finding = Finding(feature="noise", text="1 of 2 figures.", command="tessera doctor")
    assert make_statement(finding, "Noise").picture is None
