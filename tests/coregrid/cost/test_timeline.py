"""Tests of the timeline of a core: waiting lanes, and the effect of double buffers, split readers and fidelities."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.coregrid.config import ComputeConfig, Conv2dConfig, MathFidelity, ShardLayout, SliceConfig
from tessera.coregrid.cost.durations import compute_durations, get_core_rates
from tessera.coregrid.cost.timeline import LANES, CoreTimeline, build_timeline, build_timelines, predict_time
from tessera.coregrid.formats import bfloat16
from tessera.coregrid.pictures.core_charts import export_trace
from tessera.coregrid.planning.plan import ConvPlan, plan_one
from tessera.coregrid.planning.setup import ConvSetup
from tessera.coregrid.planning.slicing import plan_sliced
from tessera.geometry import Mesh
from tessera.machine import load_machine
from tessera.machine.machine import Link
from tests.coregrid.planning.shapes import square

N150 = load_machine("wormhole-n150")
CONV = square(8, 56, 64, 64)


def plan_example(layout: ShardLayout, compute: ComputeConfig | None = None, **settings: object) -> ConvPlan:
    conv = CONV if layout == ShardLayout.HEIGHT else square(16, 14, 256, 256)
    return plan_one(conv, N150, Conv2dConfig(**settings), compute, layout=layout)


def check_timeline(result: CoreTimeline) -> None:
    """Check that no lane has overlapping spans, and that all spans are within the total time."""
    for lane in LANES:
        spans = sorted((span for span in result.spans if span.lane == lane), key=lambda span: span.start)
        assert all(a.stop <= b.start + 1e-15 for a, b in itertools.pairwise(spans)), lane
    assert result.seconds == max(span.stop for span in result.spans)
    assert all(0 <= span.start < span.stop for span in result.spans)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(list(ShardLayout)),
    st.sampled_from([0, 32, 64, 128]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from(list(MathFidelity)),
)
def test_spans_of_a_lane_do_not_overlap(
    layout: ShardLayout, height: int, act: bool, weights: bool, split: bool, fidelity: MathFidelity
) -> None:
    plan = plan_example(
        layout,
        ComputeConfig(math_fidelity=fidelity),
        act_block_h_override=height,
        enable_act_double_buffer=act,
        enable_weights_double_buffer=weights,
        enable_split_reader=split,
    )
    result = build_timeline(plan)
    check_timeline(result)
    quick = predict_time(plan)
    assert quick.seconds == pytest.approx(result.seconds, rel=1e-9)
    assert [quick.busy[lane] for lane in LANES] == pytest.approx([result.compute_busy_seconds(lane) for lane in LANES])
    blocks = plan.blocks.height_blocks * plan.blocks.inner_blocks
    assert sum(span.name.startswith("matmul") for span in result.spans) == blocks


@pytest.mark.parametrize("layout", list(ShardLayout))
def test_double_buffers_hide_reads(layout: ShardLayout) -> None:
    settings = {"act_block_h_override": 64}
    single = build_timeline(plan_example(layout, **settings))
    two = build_timeline(
        plan_example(layout, enable_act_double_buffer=True, enable_weights_double_buffer=True, **settings)
    )
    assert two.seconds < single.seconds
    for lane in LANES:
        assert two.compute_busy_seconds(lane) == pytest.approx(
            single.compute_busy_seconds(lane)
        )  # the busy time is unchanged


def test_a_split_reader_halves_the_readers_time() -> None:
    single, double = (build_timeline(plan_example(ShardLayout.HEIGHT, enable_split_reader=on)) for on in (False, True))
    assert double.compute_busy_seconds("reader") == pytest.approx(single.compute_busy_seconds("reader") / 2)


def test_time_is_proportional_to_the_passes_of_a_fidelity() -> None:
    times = []
    for fidelity in MathFidelity:
        plan = plan_example(ShardLayout.HEIGHT, ComputeConfig(math_fidelity=fidelity))
        times.append(get_core_rates(plan.machine, plan.compute, bfloat16).flops)
    assert [times[0] / seconds for seconds in times] == pytest.approx([1, 2, 3, 4], rel=1e-4)


def test_full_sync_is_slower() -> None:
    whole = ComputeConfig(dst_full_sync_en=True, math_fidelity=MathFidelity.LoFi)
    halves = replace(whole, dst_full_sync_en=False)
    times = [predict_time(plan_example(ShardLayout.HEIGHT, compute)).seconds for compute in (whole, halves)]
    assert times[0] > times[1]


def test_matmul_time_follows_from_the_rates() -> None:
    plan = plan_example(ShardLayout.HEIGHT)
    rates = get_core_rates(plan.machine, plan.compute, bfloat16)
    steps = compute_durations(plan, rates)
    flops = 2 * (13 * 32) * (6 * 32) * 64
    assert steps.matmul == pytest.approx(flops / 1.024e12)
    assert steps.read == pytest.approx(13 * 32 * 64e-9 + 56e-9)  # 384 bytes every 64 cycles
    assert steps.tilize == pytest.approx(13 * 6 * 61e-9)


def test_activation_reuse_reads_every_line_once() -> None:
    conv = square(1, 64, 64, 64)
    times = []
    for reuses in (False, True):
        config = Conv2dConfig(shard_layout=ShardLayout.HEIGHT, enable_activation_reuse=reuses)
        plan = plan_one(conv, replace(N150, workers=Mesh(1, 1)), config)
        times.append(compute_durations(plan, get_core_rates(N150, plan.compute, bfloat16)).read)
    assert times[1] / times[0] == pytest.approx((1 + 63 / 3) / 64, rel=1e-2)


def test_large_transfers_are_bound_by_bandwidth_and_small_ones_by_their_number() -> None:
    rate = get_core_rates(N150, ComputeConfig(), bfloat16).chip.gather
    assert rate.compute_seconds(1e6, 1) == pytest.approx(1e6 / 27.84e9, rel=1e-2)
    assert rate.compute_seconds(1e3, 1000) == pytest.approx(64e-6, rel=1e-2)
    assert rate.compute_seconds(0, 0) == 0


def test_assumed_rates_are_named() -> None:
    e150 = load_machine("grayskull-e150")
    assert get_core_rates(e150, ComputeConfig(), bfloat16).assumed == ("links.local", "transfers", "launch")
    assert get_core_rates(N150, ComputeConfig(), bfloat16).assumed == ()


def test_slices_run_sequentially() -> None:
    setup = ConvSetup(machine=N150)
    whole = plan_sliced(square(2, 64, 32, 64), setup, SliceConfig(num_slices=4), layout=ShardLayout.HEIGHT)
    result = build_timeline(whole)
    check_timeline(result)
    inner = sum(build_timeline(part.plan).seconds for part in whole.slices)
    assert result.seconds > inner
    assert predict_time(whole).seconds == pytest.approx(result.seconds)


def test_every_row_of_cores_has_a_timeline() -> None:
    """Check one timeline per core: cores at the border of an image send fewer sticks, and the last shard is short."""
    plan = plan_example(ShardLayout.HEIGHT, act_block_h_override=32)
    every, busiest = build_timelines(plan), build_timeline(plan)
    assert len(every) == plan.sharding.rows == 61
    for result in every:
        check_timeline(result)
    assert max(result.seconds for result in every) == pytest.approx(busiest.seconds)
    matmuls = [sum(span.name.startswith("matmul") for span in result.spans) for result in every]
    assert matmuls == [13 * 3] * 60 + [4 * 3]  # the last core has 128 sticks
    assert plan.halo is not None
    halos = [result.compute_busy_seconds("halo") for result in every]
    assert halos.index(min(halos)) == plan.halo.copied.index(min(plan.halo.copied))


def test_cores_without_outputs_have_no_spans() -> None:
    config = Conv2dConfig(shard_layout=ShardLayout.HEIGHT, override_sharding_config=True, core_grid=Mesh(2, 2))
    every = build_timelines(plan_one(square(1, 7, 64, 64), N150, config))
    assert [bool(result.spans) for result in every] == [True, True, False, False]


def test_slices_wait_for_the_busiest_core() -> None:
    whole = plan_sliced(
        square(2, 64, 32, 64), ConvSetup(machine=N150), SliceConfig(num_slices=3), layout=ShardLayout.HEIGHT
    )
    every = build_timelines(whole)
    for result in every:
        assert result.seconds == pytest.approx(predict_time(whole).seconds)


def test_a_trace_has_every_span() -> None:
    every = build_timelines(plan_example(ShardLayout.BLOCK))
    events = json.loads(export_trace(every))["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert len(spans) == sum(len(result.spans) for result in every)
    assert max(event["ts"] + event["dur"] for event in spans) == pytest.approx(max(f.seconds for f in every) * 1e6)
    assert {event["pid"] for event in events} == set(range(len(every)))
    assert {event["args"]["name"] for event in events if event["name"] == "thread_name"} == set(LANES)


@pytest.mark.parametrize("name", ["wormhole-n150", "mine"])
def test_rates_follow_the_links_of_the_machine(name: str) -> None:
    links = dict(N150.links) | {"link": Link(bandwidth=(16e9,)), "global": Link(bandwidth=(144e9,))}
    shipped = get_core_rates(N150, ComputeConfig(), bfloat16).chip
    slower = get_core_rates(replace(N150, name=name, links=links), ComputeConfig(), bfloat16).chip
    for kind in ("gather", "halo", "reshard", "multicast", "bank"):
        assert getattr(slower, kind).bandwidth == getattr(shipped, kind).bandwidth / 2
    assert (slower.global_read, slower.global_write) == (shipped.global_read / 2, shipped.global_write / 2)
