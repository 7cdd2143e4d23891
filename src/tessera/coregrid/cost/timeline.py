"""Predicted time of a plan, and timelines of the cores that execute the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tessera.coregrid.config import ShardLayout
from tessera.coregrid.cost.durations import StepDurations, compute_durations
from tessera.coregrid.cost.rates import CoreRates, get_core_rates
from tessera.coregrid.cost.schedule import CoreSchedule
from tessera.coregrid.formats import TILE_SIZE
from tessera.coregrid.planning.plan import ConvPlan, PlanSlice
from tessera.coregrid.planning.slicing import count_global_bytes

LANES = ("halo", "reader", "multicast", "writer", "compute")


@dataclass(frozen=True, slots=True)
class LaneSpan:
    """One activity of a lane, from start to stop in seconds."""

    lane: str
    name: str
    start: float
    stop: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Predicted time of a plan, and the busy time of each lane of the busiest core, in seconds."""

    seconds: float
    busy: Mapping[str, float]

    @property
    def bound(self) -> str:
        """The lane with the longest busy time."""
        return max(LANES, key=lambda lane: self.busy[lane])


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreTimeline:
    """All spans of a core during one convolution."""

    spans: tuple[LaneSpan, ...]
    seconds: float

    def compute_busy_seconds(self, lane: str) -> float:
        """Return the busy time of a lane in seconds."""
        return sum(span.stop - span.start for span in self.spans if span.lane == lane)


def predict_time(plan: ConvPlan) -> Prediction:
    """Predict the time of a plan without building a timeline, which is fast even for a plan with many blocks."""
    rates = _get_plan_rates(plan)
    if not plan.slices:
        steps = compute_durations(plan, rates)
        return Prediction(seconds=CoreSchedule(plan, steps).compute_seconds(), busy=_compute_busy_seconds(plan, steps))
    seconds, busy = 0.0, dict.fromkeys(LANES, 0.0)
    predictions: dict[int, Prediction] = {}  # most slices share a plan
    for part in plan.slices:
        if id(part.plan) not in predictions:
            predictions[id(part.plan)] = predict_time(part.plan)
        inner = predictions[id(part.plan)]
        there, back = _predict_global_seconds(part, rates)
        seconds += there + inner.seconds + back
        busy = {lane: busy[lane] + inner.busy[lane] for lane in LANES}
        busy["reader"] += there
        busy["writer"] += back
    return Prediction(seconds=seconds, busy=busy)


def build_timeline(plan: ConvPlan, row: int | None = None) -> CoreTimeline:
    """Build the timeline of one row of cores, or of the busiest row (None). Slices run one after the other."""
    spans: list[LaneSpan] = []

    def add_span(lane: str, name: str, start: float, stop: float) -> None:
        if stop > start:
            spans.append(LaneSpan(lane, name, start, stop))

    rates = _get_plan_rates(plan)
    if not plan.slices:
        heights = None if row is None else _count_height_blocks(plan, row)
        if heights == 0:
            return CoreTimeline(spans=(), seconds=0.0)
        seconds = CoreSchedule(plan, compute_durations(plan, rates, row), heights).compute_seconds(add_span)
        return CoreTimeline(spans=tuple(spans), seconds=seconds)
    now = 0.0
    for number, part in enumerate(plan.slices):
        there, back = _predict_global_seconds(part, rates)
        add_span("reader", f"slice {number} in", now, now + there)
        now += there
        for span in build_timeline(part.plan, row).spans:
            add_span(span.lane, f"slice {number}: {span.name}", now + span.start, now + span.stop)
        now += predict_time(part.plan).seconds  # all cores wait for the busiest one
        add_span("writer", f"slice {number} out", now, now + back)
        now += back
    return CoreTimeline(spans=tuple(spans), seconds=now)


def build_timelines(plan: ConvPlan) -> list[CoreTimeline]:
    """Build one timeline per row of cores. All cores of a row have an identical schedule."""
    rows = max([part.plan.sharding.rows for part in plan.slices] or [plan.sharding.rows])
    return [build_timeline(plan, row) for row in range(rows)]


def _count_height_blocks(plan: ConvPlan, row: int) -> int:
    """Return the number of height blocks of a row of cores; 0 for a row without outputs."""
    shards = plan.sharding.split_outputs(plan.conv.output_sticks)
    return -(-len(shards[row]) // (plan.blocks.act_height * TILE_SIZE)) if row < len(shards) else 0


def _get_plan_rates(plan: ConvPlan) -> CoreRates:
    return get_core_rates(plan.machine, plan.compute, plan.output_dtype)


def _predict_global_seconds(part: PlanSlice, rates: CoreRates) -> tuple[float, float]:
    """Return the seconds to read the input of a slice from global memory, and to write the output, by all cores."""
    ledger = count_global_bytes(part.plan)
    return ledger.global_read / rates.global_bandwidth, ledger.global_written / rates.global_bandwidth


def _compute_busy_seconds(plan: ConvPlan, steps: StepDurations) -> dict[str, float]:
    heights, inner = plan.blocks.height_blocks, plan.blocks.inner_blocks
    alone = plan.layout == ShardLayout.HEIGHT
    gathers = heights * inner if alone else heights
    return {
        "halo": steps.halo,
        "reader": gathers * steps.read,
        "multicast": heights * inner * steps.multicast,
        "writer": (inner if alone else heights * inner) * steps.weights,
        "compute": gathers * steps.tilize + heights * (inner * steps.matmul + steps.bias),
    }
