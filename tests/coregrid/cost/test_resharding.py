"""Tests of the cost of resharding, compared with a count of the elements that move to another core."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.coregrid.config import Conv2dConfig, ShardLayout
from tessera.coregrid.cost.resharding import ShardPlacement, compute_reshard_cost, place_input, place_output
from tessera.coregrid.planning.plan import plan_one
from tessera.geometry import Mesh
from tessera.machine import load_machine
from tests.coregrid.planning.shapes import square

N150 = load_machine("wormhole-n150")


def list_cores(placement: ShardPlacement) -> np.ndarray:
    """Return the core that holds each element."""
    result = np.empty((placement.sticks, placement.channels), dtype=int)
    for stick in range(placement.sticks):
        for channel in range(placement.channels):
            down, right = stick // placement.height, channel // placement.width
            if placement.rows > 1 and placement.columns > 1:
                core = right * placement.across + down if placement.transposed else down * placement.across + right
            else:
                core = down * placement.columns + right
            result[stick, channel] = core
    return result


@st.composite
def draw_pairs(draw: st.DrawFn) -> tuple[ShardPlacement, ShardPlacement]:
    sticks, channels = draw(st.integers(1, 20)), draw(st.integers(1, 12))

    def draw_placement() -> ShardPlacement:
        rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 4))
        return ShardPlacement(
            sticks=sticks,
            channels=channels,
            rows=rows,
            columns=columns,
            height=-(-sticks // rows),
            width=-(-channels // columns),
            across=4,
            transposed=draw(st.booleans()),
        )

    return draw_placement(), draw_placement()


@settings(max_examples=200, deadline=None)
@given(draw_pairs())
def test_moved_values_are_the_values_that_change_cores(ends: tuple[ShardPlacement, ShardPlacement]) -> None:
    source, target = ends
    cost = compute_reshard_cost(source, target)
    before, after = list_cores(source), list_cores(target)
    if source != target:
        assert cost.moved == int((before != after).sum())
    assert cost.local + cost.moved == before.size
    changes = before != after
    most = max((max((before[changes] == core).sum(), (after[changes] == core).sum()) for core in range(16)), default=0)
    assert cost.busiest == most or source == target


def test_output_placement_matches_the_next_input() -> None:
    by_height = plan_one(square(8, 56, 64, 64), N150, layout=ShardLayout.HEIGHT)
    next_one = plan_one(square(8, 56, 64, 256, kernel=1), N150, layout=ShardLayout.HEIGHT)
    assert place_output(by_height) == place_input(next_one)
    assert compute_reshard_cost(place_output(by_height), place_input(next_one)).moved == 0
    by_block = plan_one(square(8, 56, 64, 64), N150, layout=ShardLayout.BLOCK)
    assert compute_reshard_cost(place_output(by_height), place_input(by_block)).moved > 0


def test_transposed_shards_are_on_other_cores() -> None:
    conv, grid = square(16, 14, 256, 256), Mesh(8, 8)
    plain, turned = (
        plan_one(conv, N150, Conv2dConfig(transpose_shards=on), layout=ShardLayout.BLOCK, grid=grid)
        for on in (True, False)
    )
    assert place_output(plain) != place_output(turned)
