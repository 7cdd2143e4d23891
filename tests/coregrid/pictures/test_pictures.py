"""Tests of the SVG pictures of plans: valid, complete, and with the values of the plan."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.coregrid.config import Conv2dConfig, ShardLayout, SliceConfig
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.cost.timeline import build_timeline
from tessera.coregrid.pictures.core_charts import draw_memory, draw_timeline
from tessera.coregrid.pictures.halos import draw_halos
from tessera.coregrid.planning.plan import plan_one
from tessera.coregrid.planning.setup import ConvSetup
from tessera.coregrid.planning.slicing import plan_sliced
from tessera.coregrid.search import plan_conv2d
from tessera.coregrid.section import build_plan_page
from tessera.errors import TesseraError
from tessera.geometry import Mesh
from tessera.machine import load_machine
from tessera.report.blocks import Picture
from tests.coregrid.planning.shapes import convolutions, square

N150 = load_machine("wormhole-n150")


def find_titles(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    return [element.text or "" for element in root.iter() if element.tag.endswith("title")]


@settings(max_examples=40, deadline=None)
@given(convolutions(), st.integers(1, 6), st.sampled_from(["span", "exact"]))
def test_a_panel_shows_every_stick_of_a_core(conv: Convolution, cores: int, mode: str) -> None:
    if conv.is_matmul:
        return
    plan = plan_one(conv, N150, Conv2dConfig(halo_mode=mode), layout=ShardLayout.HEIGHT, grid=Mesh(1, cores))
    assert plan.halo is not None
    shown = list(range(plan.sharding.rows))
    counts = {"local": 0, "remote": 0}
    for title in find_titles(draw_halos(plan, shown)):
        for kind in counts:
            if result := re.match(rf"{kind}: (\d+) sticks", title):
                counts[kind] += int(result[1])
    assert counts == {"local": sum(plan.halo.copied), "remote": sum(plan.halo.received)}


def test_many_cores_are_drawn_as_few_panels() -> None:
    plan = plan_one(square(8, 56, 64, 64), N150, layout=ShardLayout.HEIGHT)
    drawn = draw_halos(plan, standalone=False)
    assert drawn.count(">core ") - drawn.count("<title>core ") <= 6
    assert ">core 60<" in drawn
    Picture(drawn, "halos")  # the report accepts the drawing


def test_a_matmul_has_no_halo_picture() -> None:
    with pytest.raises(TesseraError, match="no halos"):
        draw_halos(plan_one(square(1, 8, 32, 32, kernel=1), N150, layout=ShardLayout.HEIGHT))


@pytest.mark.parametrize("size", [14, 112])
def test_the_memory_map_names_every_buffer(size: int) -> None:
    plan = plan_one(square(8, size, 64, 64), N150, layout=ShardLayout.HEIGHT, bias=True)
    drawn = find_titles(draw_memory(plan, standalone=False))
    for name, count in plan.footprint.get_buffer_sizes().items():
        assert f"{name}: {count:,} bytes" in drawn
    free = plan.capacity - plan.footprint.total - plan.footprint.input
    assert plan.fits == (free >= 0) == any(title == f"free: {free:,} bytes" for title in drawn)
    Picture(draw_memory(plan, standalone=False), "memory")


def test_short_timeline_shows_every_span() -> None:
    plan = build_timeline(plan_one(square(8, 56, 64, 64), N150, layout=ShardLayout.HEIGHT))
    drawn = find_titles(draw_timeline(plan, standalone=False))
    assert len(drawn) == len(plan.spans)
    Picture(draw_timeline(plan, standalone=False), "timeline")


def test_long_timeline_joins_spans() -> None:
    conv, config = square(8, 112, 64, 64), Conv2dConfig(act_block_h_override=32)
    plan = build_timeline(plan_one(conv, N150, config, layout=ShardLayout.BLOCK))
    assert len(plan.spans) > 2000
    assert len(find_titles(draw_timeline(plan))) <= 5 * 2000


def test_page_is_self_contained() -> None:
    search = plan_conv2d(square(1, 14, 64, 64), N150)
    for plan in (
        search.best.plan,
        plan_one(square(1, 8, 32, 32, kernel=1), N150, layout=ShardLayout.HEIGHT),
        plan_sliced(
            square(1, 64, 32, 32), ConvSetup(machine=N150), SliceConfig(num_slices=2), layout=ShardLayout.HEIGHT
        ),
    ):
        page = build_plan_page(plan, search)
        assert "<svg" in page
        assert "src=" not in page
        assert "href=" not in page
        assert "<script" not in page
    assert "Candidates" in page
