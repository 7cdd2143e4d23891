"""Predicted time of a plan: the schedule of a core's lanes, and timelines of the cores that execute the plan.

The lanes of a core (reader, writer, multicast, compute) run in parallel and wait for free buffers. The halo exchange
runs once, before these lanes.

A block is read into a free buffer. A single buffer is free when the previous block is tilized; with double buffering, a
buffer is free when the block before the previous block is tilized. A weight buffer is free after the matmul.

The schedule becomes periodic: waiting takes a maximum of times and work adds to a time. As soon as all active lanes
advance by an equal time per block, and no idle lane is ahead of an active lane, every further block adds this time
again. The time of the remaining blocks is then computed by one multiplication."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tessera.coregrid.config import ShardLayout
from tessera.coregrid.cost.durations import CoreRates, StepDurations, compute_durations, get_core_rates
from tessera.coregrid.formats import TILE_SIZE
from tessera.coregrid.planning.plan import ConvPlan, PlanSlice
from tessera.coregrid.planning.slicing import count_global_bytes

SpanRecorder = Callable[[str, str, float, float], None]  # (lane, name, start, stop)
ADVANCE_TOLERANCE = 1e-9  # relative difference of advances that count as equal


class LaneTimes(NamedTuple):
    """Times (s) when each lane is done, and when the last two blocks were tilized (freed) and multiplied (used)."""

    read: float
    wrote: float
    sent: float
    done: float
    freed_before: float
    freed: float
    used_before: float
    used: float


class CoreSchedule:
    """The schedule of a core over the blocks of a plan. `heights` is the core's number of height blocks.

    `record` receives every span; without it, periodic blocks are skipped.
    """

    def __init__(
        self, plan: ConvPlan, steps: StepDurations, heights: int | None = None, record: SpanRecorder | None = None
    ) -> None:
        self.steps, self.blocks, self.record = steps, plan.blocks, record
        self.heights = plan.blocks.height_blocks if heights is None else heights
        self.gathers_own = plan.layout == ShardLayout.HEIGHT
        self.two_acts = plan.config.enable_act_double_buffer
        self.two_weights = plan.config.enable_weights_double_buffer
        self.all_weights = self.gathers_own and plan.blocks.height_blocks > 1  # buffer holds all weights

    def compute_seconds(self) -> float:
        """Return the total seconds."""
        halo = self.steps.halo
        if self.record:
            self.record("halo", "halo", 0.0, halo)
        first = self._schedule_height_block(LaneTimes(*[halo] * 8), 0)

        def schedule_next_height_block(at: LaneTimes, number: int) -> LaneTimes:
            return self._schedule_height_block(at, number + 1)

        last = repeat_step(first, schedule_next_height_block, self.heights - 1, skip=self.record is None)
        return max(last.read, last.wrote, last.sent, last.done)

    def _schedule_height_block(self, at: LaneTimes, height: int) -> LaneTimes:
        """Schedule one height block: all inner blocks, then the bias."""
        if not self.gathers_own:
            at = self._schedule_gather(at, str(height), free=at.freed_before if self.two_acts else at.used)
        ready = at.freed

        def schedule_inner_block(at: LaneTimes, number: int) -> LaneTimes:
            name = f"{height}.{number}"
            if self.gathers_own:
                return self._schedule_own_block(at, name, weights=height == 0)
            return self._schedule_shared_block(at, name, ready)

        at = repeat_step(at, schedule_inner_block, self.blocks.inner_blocks, skip=self.record is None)
        done = at.done + self.steps.bias
        if self.record:
            self.record("compute", f"bias {height}", at.done, done)
        return at._replace(done=done)

    def _schedule_gather(self, at: LaneTimes, name: str, free: float) -> LaneTimes:
        """Schedule reading windows into a buffer, which is available at time `free`, and tilizing them."""
        begin = max(at.read, free)
        read = begin + self.steps.read
        start = max(at.done, read)
        done = start + self.steps.tilize
        if self.record:
            self.record("reader", f"act {name}", begin, read)
            self.record("compute", f"tilize {name}", start, done)
        return at._replace(read=read, done=done, freed_before=at.freed, freed=done)

    def _schedule_own_block(self, at: LaneTimes, name: str, weights: bool) -> LaneTimes:
        """Schedule gathering, tilizing and multiplying a block (HEIGHT). With `weights`, load its weights as well."""
        at = self._schedule_gather(at, name, free=at.freed_before if self.two_acts else at.freed)
        if weights:
            at = self._schedule_weight_load(
                at, name, free=at.wrote if self.all_weights else self._get_weights_free_time(at)
            )
        return self._schedule_matmul(at, name, max(at.done, at.wrote))

    def _schedule_shared_block(self, at: LaneTimes, name: str, ready: float) -> LaneTimes:
        """Schedule receiving a block by multicast, loading its weights from global memory, and multiplying."""
        begin = max(at.sent, ready, at.used_before if self.two_acts else at.used)
        sent = begin + self.steps.multicast
        if self.record:
            self.record("multicast", f"act {name}", begin, sent)
        at = self._schedule_weight_load(at._replace(sent=sent), name, free=self._get_weights_free_time(at))
        return self._schedule_matmul(at, name, max(at.done, at.sent, at.wrote))

    def _get_weights_free_time(self, at: LaneTimes) -> float:
        return at.used_before if self.two_weights else at.used

    def _schedule_weight_load(self, at: LaneTimes, name: str, free: float) -> LaneTimes:
        begin = max(at.wrote, free)
        wrote = begin + self.steps.weights
        if self.record:
            self.record("writer", f"weights {name}", begin, wrote)
        return at._replace(wrote=wrote)

    def _schedule_matmul(self, at: LaneTimes, name: str, begin: float) -> LaneTimes:
        done = begin + self.steps.matmul
        if self.record:
            self.record("compute", f"matmul {name}", begin, done)
        return at._replace(done=done, used_before=at.used, used=done)


def repeat_step(at: LaneTimes, step: Callable[[LaneTimes, int], LaneTimes], times: int, *, skip: bool) -> LaneTimes:
    """Apply `step` repeatedly. With `skip`, extrapolate the remaining steps as soon as the schedule is periodic."""
    for number in range(times):
        before, at = at, step(at, number)
        left = times - number - 1
        if skip and left and (growth := _compute_common_advance(before, at)):
            return LaneTimes(
                *(late + left * growth if late > early else late for early, late in zip(before, at, strict=True))
            )
    return at


def _compute_common_advance(before: LaneTimes, after: LaneTimes) -> float:
    """Return the common advance of all active lanes; 0 if their advances differ or an idle lane is ahead of them."""
    growths = [late - early for early, late in zip(before, after, strict=True)]
    going = [growth for growth in growths if growth > 0]
    if not going or max(going) - min(going) > ADVANCE_TOLERANCE * max(going):
        return 0.0
    resting = [late for late, growth in zip(after, growths, strict=True) if growth == 0]
    behind = min(late for late, growth in zip(after, growths, strict=True) if growth > 0)
    return going[0] if not resting or max(resting) <= behind else 0.0


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
    """Predict the time of a plan. No timeline is built, so the prediction is fast for plans with many blocks too."""
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
        there, back = _predict_global_memory_seconds(part, rates)
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
        seconds = CoreSchedule(plan, compute_durations(plan, rates, row), heights, add_span).compute_seconds()
        return CoreTimeline(spans=tuple(spans), seconds=seconds)
    now = 0.0
    for number, part in enumerate(plan.slices):
        there, back = _predict_global_memory_seconds(part, rates)
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
    return get_core_rates(plan.machine, plan.compute, plan.config.dtype)


def _predict_global_memory_seconds(part: PlanSlice, rates: CoreRates) -> tuple[float, float]:
    """Return the seconds to read the input of a slice from global memory, and to write the output, by all cores."""
    ledger = count_global_bytes(part.plan)
    return ledger.global_read / rates.chip.global_read, ledger.global_written / rates.chip.global_write


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
