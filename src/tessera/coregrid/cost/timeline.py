"""How long a plan takes by the machine's rates, and the timelines of its cores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tessera.coregrid.cost.durations import Durations, durations
from tessera.coregrid.cost.rates import Rates, rates_of
from tessera.coregrid.cost.schedule import Schedule
from tessera.coregrid.formats import TILE
from tessera.coregrid.planning.plan import ConvPlan, Slice
from tessera.coregrid.planning.sharding import ShardLayout
from tessera.coregrid.planning.slicing import global_ledger

LANES = ("halo", "reader", "multicast", "writer", "compute")


@dataclass(frozen=True, slots=True)
class Span:
    """Something that a lane does from one moment to another, in seconds."""

    lane: str
    name: str
    start: float
    stop: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """How long a plan takes, and how long each lane of the busiest core is at work."""

    seconds: float
    busy: Mapping[str, float]

    @property
    def bound(self) -> str:
        """The lane that is at work longest: what the convolution waits for."""
        return max(LANES, key=lambda lane: self.busy[lane])


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The spans of a core, from the start of the convolution to its end."""

    spans: tuple[Span, ...]
    seconds: float

    def busy(self, lane: str) -> float:
        """How long a lane is at work."""
        return sum(span.stop - span.start for span in self.spans if span.lane == lane)


def predicted(plan: ConvPlan) -> Prediction:
    """The time of a plan without its timeline: as quick for many blocks as for few."""
    rates = _rates(plan)
    if not plan.slices:
        steps = durations(plan, rates)
        return Prediction(seconds=Schedule(plan, steps).run(), busy=_busy(plan, steps))
    seconds, busy = 0.0, dict.fromkeys(LANES, 0.0)
    known: dict[int, Prediction] = {}  # most slices share a plan
    for part in plan.slices:
        if id(part.plan) not in known:
            known[id(part.plan)] = predicted(part.plan)
        inner = known[id(part.plan)]
        there, back = _through_global(part, rates)
        seconds += there + inner.seconds + back
        busy = {lane: busy[lane] + inner.busy[lane] for lane in LANES}
        busy["reader"] += there
        busy["writer"] += back
    return Prediction(seconds=seconds, busy=busy)


def timeline(plan: ConvPlan, row: int | None = None) -> Timeline:
    """The timeline of every core of a row, or (None) of the busiest; slices come one after the other."""
    spans: list[Span] = []

    def note(lane: str, name: str, start: float, stop: float) -> None:
        if stop > start:
            spans.append(Span(lane, name, start, stop))

    rates = _rates(plan)
    if not plan.slices:
        heights = None if row is None else _heights(plan, row)
        if heights == 0:
            return Timeline(spans=(), seconds=0.0)
        seconds = Schedule(plan, durations(plan, rates, row), heights).run(note)
        return Timeline(spans=tuple(spans), seconds=seconds)
    now = 0.0
    for number, part in enumerate(plan.slices):
        there, back = _through_global(part, rates)
        note("reader", f"slice {number} in", now, now + there)
        now += there
        for span in timeline(part.plan, row).spans:
            note(span.lane, f"slice {number}: {span.name}", now + span.start, now + span.stop)
        now += predicted(part.plan).seconds  # all cores wait for the busiest
        note("writer", f"slice {number} out", now, now + back)
        now += back
    return Timeline(spans=tuple(spans), seconds=now)


def timelines(plan: ConvPlan) -> list[Timeline]:
    """The timelines of all cores: one for each row of them, whose cores do the same side by side."""
    rows = max([part.plan.sharding.rows for part in plan.slices] or [plan.sharding.rows])
    return [timeline(plan, row) for row in range(rows)]


def _heights(plan: ConvPlan, row: int) -> int:
    """How many blocks of the height the cores of a row have; none if it has no outputs."""
    shards = plan.sharding.outputs(plan.conv.outputs)
    return -(-len(shards[row]) // (plan.blocks.act_height * TILE)) if row < len(shards) else 0


def _rates(plan: ConvPlan) -> Rates:
    return rates_of(plan.machine, plan.compute, plan.output_dtype)


def _through_global(part: Slice, rates: Rates) -> tuple[float, float]:
    """Seconds to read a slice from global memory by all cores together, and to write its output back."""
    moved = global_ledger(part.plan)
    return moved.global_read / rates.globally, moved.global_written / rates.globally


def _busy(plan: ConvPlan, steps: Durations) -> dict[str, float]:
    heights, inner = plan.blocks.height_blocks, plan.blocks.inner_blocks
    alone = plan.layout == ShardLayout.HEIGHT
    gathers = heights * inner if alone else heights
    return {
        "halo": steps.halo,
        "reader": gathers * steps.read,
        "multicast": heights * inner * steps.multicast,
        "writer": (inner if alone else heights * inner) * steps.weights,
        "compute": gathers * steps.tilize + heights * (inner * steps.matmul + steps.finish),
    }
