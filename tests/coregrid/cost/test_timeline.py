"""Timelines: lanes that wait for one another, and what double buffers, split readers and fidelities do."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.coregrid.config import ComputeConfig, Conv2dConfig, MathFidelity, SliceConfig
from tessera.coregrid.cost.durations import durations
from tessera.coregrid.cost.rates import rates_of
from tessera.coregrid.cost.timeline import LANES, Timeline, predicted, timeline, timelines
from tessera.coregrid.formats import bfloat16
from tessera.coregrid.pictures.lanes import trace
from tessera.coregrid.planning.plan import ConvPlan, Setup, plan_one
from tessera.coregrid.planning.sharding import ShardLayout
from tessera.coregrid.planning.slicing import plan_sliced
from tessera.geometry import Mesh
from tessera.machine import load_machine
from tests.coregrid.planning.shapes import square

N150 = load_machine("wormhole-n150")
CONV = square(8, 56, 64, 64)


def planned(layout: ShardLayout, compute: ComputeConfig | None = None, **knobs: object) -> ConvPlan:
    conv = CONV if layout == ShardLayout.HEIGHT else square(16, 14, 256, 256)
    return plan_one(conv, N150, Conv2dConfig(**knobs), compute, layout=layout)


def valid(found: Timeline) -> None:
    """No lane does two things at once, and everything is within the whole."""
    for lane in LANES:
        spans = sorted((span for span in found.spans if span.lane == lane), key=lambda span: span.start)
        assert all(a.stop <= b.start + 1e-15 for a, b in itertools.pairwise(spans)), lane
    assert found.seconds == max(span.stop for span in found.spans)
    assert all(0 <= span.start < span.stop for span in found.spans)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(list(ShardLayout)),
    st.sampled_from([0, 32, 64, 128]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from(list(MathFidelity)),
)
def test_lanes_do_one_thing_at_a_time(
    layout: ShardLayout, height: int, act: bool, weights: bool, split: bool, fidelity: MathFidelity
) -> None:
    plan = planned(
        layout,
        ComputeConfig(math_fidelity=fidelity),
        act_block_h_override=height,
        enable_act_double_buffer=act,
        enable_weights_double_buffer=weights,
        enable_split_reader=split,
    )
    found = timeline(plan)
    valid(found)
    quick = predicted(plan)
    assert quick.seconds == pytest.approx(found.seconds, rel=1e-9)
    assert [quick.busy[lane] for lane in LANES] == pytest.approx([found.busy(lane) for lane in LANES])
    blocks = plan.blocks.height_blocks * plan.blocks.inner_blocks
    assert sum(span.name.startswith("matmul") for span in found.spans) == blocks


@pytest.mark.parametrize("layout", list(ShardLayout))
def test_double_buffers_hide_reads(layout: ShardLayout) -> None:
    knobs = {"act_block_h_override": 64}
    one = timeline(planned(layout, **knobs))
    two = timeline(planned(layout, enable_act_double_buffer=True, enable_weights_double_buffer=True, **knobs))
    assert two.seconds < one.seconds
    for lane in LANES:
        assert two.busy(lane) == pytest.approx(one.busy(lane))  # as much is done


def test_a_split_reader_halves_the_readers_time() -> None:
    one, two = (timeline(planned(ShardLayout.HEIGHT, enable_split_reader=on)) for on in (False, True))
    assert two.busy("reader") == pytest.approx(one.busy("reader") / 2)


def test_fidelities_take_their_passes() -> None:
    times = []
    for fidelity in MathFidelity:
        plan = planned(ShardLayout.HEIGHT, ComputeConfig(math_fidelity=fidelity))
        times.append(rates_of(plan.machine, plan.compute, bfloat16).flops)
    assert [times[0] / one for one in times] == pytest.approx([1, 2, 3, 4], rel=1e-4)


def test_registers_that_are_one_sides_at_a_time_wait() -> None:
    whole = ComputeConfig(dst_full_sync_en=True, math_fidelity=MathFidelity.LoFi)
    halves = replace(whole, dst_full_sync_en=False)
    times = [predicted(planned(ShardLayout.HEIGHT, compute)).seconds for compute in (whole, halves)]
    assert times[0] > times[1]


def test_the_arithmetic_is_that_of_the_rates() -> None:
    plan = planned(ShardLayout.HEIGHT)
    rates = rates_of(plan.machine, plan.compute, bfloat16)
    steps = durations(plan, rates)
    flops = 2 * (13 * 32) * (6 * 32) * 64
    assert steps.matmul == pytest.approx(flops / 1.024e12)
    gathered = 13 * 32 * 6 * 32 * 2
    assert steps.read == pytest.approx(gathered / 32e9 + 13 * 32 * 19e-9)


def test_figures_that_a_machine_does_not_have_are_named() -> None:
    e150 = load_machine("grayskull-e150")
    assert rates_of(e150, ComputeConfig(), bfloat16).assumed == ("links.local", "links.link", "launch")
    assert rates_of(N150, ComputeConfig(), bfloat16).assumed == ()


def test_slices_come_one_after_the_other() -> None:
    setup = Setup(machine=N150)
    whole = plan_sliced(square(2, 64, 32, 64), setup, SliceConfig(num_slices=4), layout=ShardLayout.HEIGHT)
    found = timeline(whole)
    valid(found)
    inner = sum(timeline(part.plan).seconds for part in whole.slices)
    assert found.seconds > inner
    assert predicted(whole).seconds == pytest.approx(found.seconds)


def test_every_row_of_cores_has_a_timeline() -> None:
    """The first and the last of an image have less to push, the last of all has a short shard."""
    plan = planned(ShardLayout.HEIGHT, act_block_h_override=32)
    every, busiest = timelines(plan), timeline(plan)
    assert len(every) == plan.sharding.rows == 61
    for found in every:
        valid(found)
    assert max(found.seconds for found in every) == pytest.approx(busiest.seconds)
    matmuls = [sum(span.name.startswith("matmul") for span in found.spans) for found in every]
    assert matmuls == [13 * 3] * 60 + [4 * 3]  # the last has 128 sticks
    assert plan.halo is not None
    halos = [found.busy("halo") for found in every]
    assert halos.index(min(halos)) == plan.halo.copied.index(min(plan.halo.copied))


def test_cores_without_outputs_do_nothing() -> None:
    config = Conv2dConfig(shard_layout=ShardLayout.HEIGHT, override_sharding_config=True, core_grid=Mesh(2, 2))
    every = timelines(plan_one(square(1, 7, 64, 64), N150, config))
    assert [bool(found.spans) for found in every] == [True, True, False, False]


def test_slices_wait_for_the_busiest_core() -> None:
    whole = plan_sliced(
        square(2, 64, 32, 64), Setup(machine=N150), SliceConfig(num_slices=3), layout=ShardLayout.HEIGHT
    )
    every = timelines(whole)
    for found in every:
        assert found.seconds == pytest.approx(predicted(whole).seconds)


def test_a_trace_has_every_span() -> None:
    every = timelines(planned(ShardLayout.BLOCK))
    events = json.loads(trace(every))["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert len(spans) == sum(len(found.spans) for found in every)
    assert max(event["ts"] + event["dur"] for event in spans) == pytest.approx(max(f.seconds for f in every) * 1e6)
    assert {event["pid"] for event in events} == set(range(len(every)))
    assert {event["args"]["name"] for event in events if event["name"] == "thread_name"} == set(LANES)
