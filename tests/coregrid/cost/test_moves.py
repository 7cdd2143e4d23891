"""Resharding: what moves is what is not where it should be, counted number by number."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.coregrid.config import Conv2dConfig
from tessera.coregrid.cost.moves import Lying, input_of, output_of, reshard
from tessera.coregrid.planning.plan import plan_one
from tessera.coregrid.planning.sharding import ShardLayout
from tessera.geometry import Mesh
from tessera.machine import load_machine
from tests.coregrid.planning.shapes import square

N150 = load_machine("wormhole-n150")


def cores(lying: Lying) -> np.ndarray:
    """The core of every number."""
    found = np.empty((lying.sticks, lying.channels), dtype=int)
    for stick in range(lying.sticks):
        for channel in range(lying.channels):
            down, right = stick // lying.height, channel // lying.width
            if lying.rows > 1 and lying.columns > 1:
                core = right * lying.across + down if lying.transposed else down * lying.across + right
            else:
                core = down * lying.columns + right
            found[stick, channel] = core
    return found


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Lying, Lying]:
    sticks, channels = draw(st.integers(1, 20)), draw(st.integers(1, 12))

    def one() -> Lying:
        rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 4))
        return Lying(
            sticks=sticks,
            channels=channels,
            rows=rows,
            columns=columns,
            height=-(-sticks // rows),
            width=-(-channels // columns),
            across=4,
            transposed=draw(st.booleans()),
        )

    return one(), one()


@settings(max_examples=200, deadline=None)
@given(pairs())
def test_what_moves_is_what_changes_cores(ends: tuple[Lying, Lying]) -> None:
    source, target = ends
    found = reshard(source, target)
    before, after = cores(source), cores(target)
    if source != target:
        assert found.moved == int((before != after).sum())
    assert found.kept + found.moved == before.size
    changes = before != after
    most = max((max((before[changes] == core).sum(), (after[changes] == core).sum()) for core in range(16)), default=0)
    assert found.busiest == most or source == target


def test_the_output_of_a_layer_lies_as_the_next_wants_it() -> None:
    one = plan_one(square(8, 56, 64, 64), N150, layout=ShardLayout.HEIGHT)
    next_one = plan_one(square(8, 56, 64, 256, kernel=1), N150, layout=ShardLayout.HEIGHT)
    assert output_of(one) == input_of(next_one)
    assert reshard(output_of(one), input_of(next_one)).moved == 0
    other = plan_one(square(8, 56, 64, 64), N150, layout=ShardLayout.BLOCK)
    assert reshard(output_of(one), input_of(other)).moved > 0


def test_turned_shards_lie_elsewhere() -> None:
    conv, grid = square(16, 14, 256, 256), Mesh(8, 8)
    plain, turned = (
        plan_one(conv, N150, Conv2dConfig(transpose_shards=on), layout=ShardLayout.BLOCK, grid=grid)
        for on in (True, False)
    )
    assert output_of(plain) != output_of(turned)
