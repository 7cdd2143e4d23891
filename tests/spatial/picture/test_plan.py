"""The picture of a plan: every box in its place, with its number, in the colours of the reader's theme."""

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
from tessera.spatial.picture.layout import Scale, lay_out
from tessera.spatial.picture.page import plan_page
from tessera.spatial.picture.plan import MOST_ARROWS, plan_svg
from tests.spatial.test_predict import cuts, plan_of

SVG = "{http://www.w3.org/2000/svg}"


def same(mesh: Mesh, height: int = 64, width: int = 64, kernel: int = 3) -> HaloPlan:
    image = Partition.grid((1, height, width), mesh)
    return HaloPlan(image, Window.of(kernel, padding=kernel // 2), image)


def titles(svg: str) -> list[str]:
    return [title.text or "" for title in ElementTree.fromstring(svg).iter(f"{SVG}title")]


@given(cuts(), st.sampled_from(["zeros", "reflect", "replicate", "circular"]))
@settings(max_examples=60, deadline=None)
def test_every_move_and_all_padding_is_drawn(cut: tuple[tuple[int, int, int], Window, Mesh], mode: str) -> None:
    sizes, window, mesh = cut
    outputs = (sizes[0], *window.output_size(sizes[1:]))
    try:
        plan = HaloPlan(Partition.grid(sizes, mesh), window, Partition.grid(outputs, mesh), mode)  # type: ignore[arg-type]
    except ValueError:
        plan = plan_of(*cut)
    svg = plan_svg(plan)
    found = titles(svg)
    moves = [(move.source, move.target, move.taken.size) for move in plan.moves]
    drawn = [re.match(r"worker (\d+) receives .* from worker (\d+): ([\d,]+) pixel", title) for title in found]
    assert sorted((int(m[2]), int(m[1]), int(m[3].replace(",", ""))) for m in drawn if m) == sorted(moves)
    sent = [re.match(r"worker (\d+) sends .* to worker (\d+): ([\d,]+) pixel", title) for title in found]
    assert sorted((int(m[1]), int(m[2]), int(m[3].replace(",", ""))) for m in sent if m) == sorted(moves)
    pads = sum(len(worker.pads) + len(worker.fills) for worker in plan.workers)
    assert sum("padding of" in title and "its own" not in title for title in found) == pads
    arrows = svg.count("data-from=")
    assert arrows == (len(moves) if len(moves) <= MOST_ARROWS else 0)


@given(cuts())
@settings(max_examples=60, deadline=None)
def test_boxes_lie_within_the_picture_and_tiles_do_not_overlap(cut: tuple[tuple[int, int, int], Window, Mesh]) -> None:
    plan = plan_of(*cut)
    layout = lay_out(plan, 0.0)
    frames = []
    for panel, worker in zip(layout.panels, plan.workers, strict=True):
        boxes = [worker.owned, worker.need, *worker.pads, *(move.placed for move in worker.receives)]
        placed = [panel.place(box) for box in boxes if box]
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
        for other in frames[number + 1 :]:
            apart = right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top
            assert apart


@pytest.mark.parametrize("count", [2, 3, 8, 16, 64])
@pytest.mark.parametrize("method", ["rows", "columns"])
def test_long_lines_of_tiles_are_broken(count: int, method: str) -> None:
    plan = same(Mesh(count, 1) if method == "rows" else Mesh(1, count), 640, 640)
    layout = lay_out(plan, 0.0)
    assert layout.width < 1300
    tiles = [panel.place(worker.owned) for panel, worker in zip(layout.panels, plan.workers, strict=True)]
    assert min(min(width, height) for _, _, width, height in tiles) >= 17


def test_neighbours_differ_in_colour() -> None:
    layout = lay_out(same(Mesh(5, 7), 70, 70), 0.0)
    by_place = {(panel.row, panel.col): panel.colour % 6 for panel in layout.panels}
    for (row, col), colour in by_place.items():
        around = [by_place.get((row + i, col + j)) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j]
        assert colour not in around


def test_a_thin_border_is_wide_enough_to_see() -> None:
    plan = same(Mesh(2, 2), 16384, 16384)
    layout = lay_out(plan, 0.0)
    for panel, worker in zip(layout.panels, plan.workers, strict=True):
        for move in worker.receives:
            assert min(panel.place(move.placed)[2:]) >= 17


def test_a_scale_is_even_within_the_tile() -> None:
    scale = Scale.of(Interval(10, 30), {9, 10, 20, 30, 33}, 100.0)
    places = [scale.at(pixel) for pixel in range(9, 34)]
    steps = [b - a for a, b in pairwise(places)]
    assert steps[1:21] == pytest.approx([5.0] * 20)
    assert all(step > 0 for step in steps)


def test_it_stands_alone_in_light_and_dark_or_takes_the_colours_of_a_page() -> None:
    alone, embedded = plan_svg(same(Mesh(2, 2))), plan_svg(same(Mesh(2, 2)), standalone=False)
    assert "prefers-color-scheme: dark" in alone
    assert "--series-1:" in alone
    Picture(embedded, "a plan")  # what the report takes: no style, no script
    assert not re.search(r"(?:href|src)=|url\((?!#)", alone), "nothing is fetched"


def test_a_gathering_and_workers_without_pixels_are_drawn() -> None:
    tiles = Partition.grid((1, 3, 8), Mesh(4, 1))
    gathering = HaloPlan(tiles, Window.point(), Partition.at((1, 3, 8), 4))
    found = titles(plan_svg(gathering))
    assert sum("worker 0 receives" in title for title in found) == 2
    assert not any("worker 3 has" in title for title in found)


def test_what_cannot_be_drawn_is_said() -> None:
    runs = Partition.runs((1, 4, 6), [8, 8, 8])
    with pytest.raises(TesseraError, match="one tile each"):
        plan_svg(HaloPlan(runs, Window.point(), runs))
    line = Partition.grid((1, 8), Mesh(1, 2))
    with pytest.raises(TesseraError, match="images of two dims: got '1 dims'"):
        plan_svg(HaloPlan(line, Window.of(3, padding=1, dims=1), line))


def test_the_page_has_a_card_for_every_worker() -> None:
    plan = same(Mesh(2, 3))
    page = plan_page(plan, 8)
    cards = re.findall(r'data-card="(\d)" data-partners="([\d ]*)"', page)
    assert [int(number) for number, _ in cards] == list(range(6))
    for number, partners in cards:
        expected = {move.source for move in plan.workers[int(number)].receives}
        assert {int(partner) for partner in partners.split()} == expected
    assert "script-src 'sha256-" in page
