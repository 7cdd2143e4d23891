"""Tests of the picture of a plan: positions, numbers and colours of all boxes."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.errors import TesseraError
from tessera.geometry import HaloPlan, Interval, Mesh, Partition, Window
from tessera.report.blocks import Picture
from tessera.spatial.picture.layout import AxisScale, arrange_panels
from tessera.spatial.picture.page import build_plan_page
from tessera.spatial.picture.plan import MAX_ARROWS, draw_plan
from tests.geometry.strategies import place_on
from tests.spatial.test_cost import make_halo_plan, splits

SVG = "{http://www.w3.org/2000/svg}"


def make_same_plan(mesh: Mesh, height: int = 64, width: int = 64, kernel: int = 3) -> HaloPlan:
    image = Partition.split_by_grid((1, height, width), mesh)
    return HaloPlan(image, Window.of(kernel, padding=kernel // 2), image)


def read_titles(svg: str) -> list[str]:
    return [title.text or "" for title in ElementTree.fromstring(svg).iter(f"{SVG}title")]


@given(splits(), st.sampled_from(["zeros", "reflect", "replicate", "circular"]))
@settings(max_examples=60, deadline=None)
def test_every_move_and_all_padding_is_drawn(split: tuple[tuple[int, int, int], Window, Mesh], mode: str) -> None:
    sizes, window, mesh = split
    outputs = (sizes[0], *window.compute_output_size(sizes[1:]))
    try:
        plan = HaloPlan(Partition.split_by_grid(sizes, mesh), window, Partition.split_by_grid(outputs, mesh), mode)  # type: ignore[arg-type]
    except ValueError:
        plan = make_halo_plan(*split)
    svg = draw_plan(plan)
    titles = read_titles(svg)
    moves = [(move.source, move.target, move.source_box.size) for move in plan.moves]
    drawn = [re.match(r"worker (\d+) receives .* from worker (\d+): ([\d,]+) pixel", title) for title in titles]
    assert sorted((int(m[2]), int(m[1]), int(m[3].replace(",", ""))) for m in drawn if m) == sorted(moves)
    sent = [re.match(r"worker (\d+) sends .* to worker (\d+): ([\d,]+) pixel", title) for title in titles]
    assert sorted((int(m[1]), int(m[2]), int(m[3].replace(",", ""))) for m in sent if m) == sorted(moves)
    pads = sum(len(worker.pads) + len(worker.fills) for worker in plan.workers)
    assert sum("padding of" in title and "its own" not in title for title in titles) == pads
    arrows = svg.count("data-from=")
    assert arrows == (len(moves) if len(moves) <= MAX_ARROWS else 0)


@given(splits())
@settings(max_examples=60, deadline=None)
def test_boxes_lie_within_the_picture_and_tiles_do_not_overlap(
    split: tuple[tuple[int, int, int], Window, Mesh],
) -> None:
    plan = make_halo_plan(*split)
    layout = arrange_panels(plan, 0.0)
    frames = []
    for panel, worker in zip(layout.panels, plan.workers, strict=True):
        boxes = [worker.owned, worker.need, *worker.pads, *(move.target_box for move in worker.receives)]
        placed = [panel.compute_rectangle(box) for box in boxes if box]
        for x, y, width, height in placed:
            assert width > 0
            assert height > 0
            assert x >= 0
            assert x + width <= layout.width
            assert y >= 0
            assert y + height <= layout.height
        if placed:
            left, top = min(x for x, *_ in placed), min(y for _, y, *_ in placed)
            right, bottom = max(x + w for x, _, w, _ in placed), max(y + h for _, y, _, h in placed)
            frames.append((left, top, right, bottom))
    for number, (left, top, right, bottom) in enumerate(frames):
        for later in frames[number + 1 :]:
            apart = right <= later[0] or later[2] <= left or bottom <= later[1] or later[3] <= top
            assert apart


@pytest.mark.parametrize("count", [2, 3, 8, 16, 64])
@pytest.mark.parametrize("method", ["rows", "columns"])
def test_long_lines_of_tiles_are_broken(count: int, method: str) -> None:
    plan = make_same_plan(Mesh(count, 1) if method == "rows" else Mesh(1, count), 640, 640)
    layout = arrange_panels(plan, 0.0)
    assert layout.width < 1300
    tiles = [panel.compute_rectangle(worker.owned) for panel, worker in zip(layout.panels, plan.workers, strict=True)]
    assert min(min(width, height) for _, _, width, height in tiles) >= 17


def test_neighbours_differ_in_colour() -> None:
    layout = arrange_panels(make_same_plan(Mesh(5, 7), 70, 70), 0.0)
    by_place = {(panel.row, panel.col): panel.colour % 6 for panel in layout.panels}
    for (row, col), colour in by_place.items():
        around = [by_place.get((row + i, col + j)) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j]
        assert colour not in around


def test_a_thin_border_is_wide_enough_to_see() -> None:
    plan = make_same_plan(Mesh(2, 2), 16384, 16384)
    layout = arrange_panels(plan, 0.0)
    for panel, worker in zip(layout.panels, plan.workers, strict=True):
        for move in worker.receives:
            assert min(panel.compute_rectangle(move.target_box)[2:]) >= 17


def test_a_scale_is_even_within_the_tile() -> None:
    scale = AxisScale.from_edges(Interval(10, 30), {9, 10, 20, 30, 33}, 100.0)
    places = [scale.get_position(pixel) for pixel in range(9, 34)]
    steps = [b - a for a, b in pairwise(places)]
    assert steps[1:21] == pytest.approx([5.0] * 20)
    assert all(step > 0 for step in steps)


def test_a_standalone_picture_has_both_themes_and_an_embedded_one_has_no_style() -> None:
    alone, embedded = draw_plan(make_same_plan(Mesh(2, 2))), draw_plan(make_same_plan(Mesh(2, 2)), standalone=False)
    assert "prefers-color-scheme: dark" in alone
    assert "--series-1:" in alone
    Picture(embedded, "a plan")  # the picture in a report has neither style nor script
    assert not re.search(r"(?:href|src)=|url\((?!#)", alone), "nothing is fetched"


def test_a_gathering_and_workers_without_pixels_are_drawn() -> None:
    tiles = Partition.split_by_grid((1, 3, 8), Mesh(4, 1))
    gathering = HaloPlan(tiles, Window.of_one_pixel(), place_on((1, 3, 8), 4))
    titles = read_titles(draw_plan(gathering))
    assert sum("worker 0 receives" in title for title in titles) == 2
    assert not any("worker 3 has" in title for title in titles)


def test_plans_that_cannot_be_drawn_are_refused() -> None:
    runs = Partition.split_runs((1, 4, 6), [8, 8, 8])
    with pytest.raises(TesseraError, match="only if every worker has at most one tile"):
        draw_plan(HaloPlan(runs, Window.of_one_pixel(), runs))
    line = Partition.split_by_grid((1, 8), Mesh(1, 2))
    with pytest.raises(TesseraError, match="images with two dims can be drawn: got '1 dims'"):
        draw_plan(HaloPlan(line, Window.of(3, padding=1, dims=1), line))


def test_the_page_has_a_card_for_every_worker() -> None:
    plan = make_same_plan(Mesh(2, 3))
    page = build_plan_page(plan, 8)
    cards = re.findall(r'data-card="(\d)" data-partners="([\d ]*)"', page)
    assert [int(number) for number, _ in cards] == list(range(6))
    for number, partners in cards:
        expected = {move.source for move in plan.workers[int(number)].receives}
        assert {int(partner) for partner in partners.split()} == expected
    assert "script-src 'sha256-" in page
