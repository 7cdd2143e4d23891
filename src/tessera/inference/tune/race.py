"""Find the best candidate (engine, replicas, threads per replica, batch size) with short bursts and successive halving.

1. Screening. Every replica set runs one burst at the batch size that is most likely the best. Sets far below the best
   score are dropped; the remaining sets run a burst at other batch sizes. Engines that start slowly come last.
2. Rounds. The bursts of the remaining candidates are interleaved in random order, so that machine drift affects all
   of them equally. After each round (rung) the better half of the candidates continues with twice as many bursts.

The race ends when one candidate is left or the time is up."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from tessera.device import CPU
from tessera.errors import TesseraError
from tessera.inference.engines import ENGINES

DEFAULT_TUNE_TIME = 300.0  # seconds
BATCH_SIZES = (1, 2, 4, 8, 16, 32)  # default batch sizes of tuning


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ReplicaSet:
    """A set of replicas of one engine that start together; `threads` is the number of threads per replica."""

    engine: str
    replicas: int
    threads: int
    device: str = CPU

    @property
    def slow_start(self) -> bool:
        """Whether building a session of the engine takes long; False for engines that are not registered."""
        return self.engine in ENGINES and ENGINES[self.engine].slow_start

    def __str__(self) -> str:
        where = "" if self.device == CPU else f" on {self.device}"
        return f"{self.engine} {self.replicas}x{self.threads}{where}"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TuningCandidate:
    """A replica set with a batch size.

    >>> str(TuningCandidate(replica_set=ReplicaSet(engine="openvino", replicas=2, threads=1), batch=8))
    'openvino 2x1 batch 8'
    """

    replica_set: ReplicaSet
    batch: int

    def __str__(self) -> str:
        return f"{self.replica_set} batch {self.batch}"


def list_placements(cores: int, replicas: Sequence[int] = (), threads: Sequence[int] = ()) -> list[tuple[int, int]]:
    """Return pairs (replicas, threads per replica) that use all cores, one thread per replica first.

    If `replicas` or `threads` is given, only these numbers are used.

    >>> list_placements(4)
    [(4, 1), (2, 2), (1, 4)]
    >>> list_placements(4, replicas=[1])
    [(1, 4)]
    """
    if replicas and threads:
        return [(count, each) for count in replicas for each in threads]
    if threads:
        return [(max(1, cores // each), each) for each in threads]
    counts = replicas or [count for count in range(cores, 0, -1) if cores % count == 0]
    return [(count, max(1, cores // count)) for count in counts]


def list_replica_sets(
    engines: Sequence[str], places: Sequence[tuple[int, int]], devices: Sequence[str] = (CPU,)
) -> list[ReplicaSet]:
    """Return a replica set for every engine, placement and device, in the order in which tuning tries them.

    An engine is combined with the devices that it supports. Engines that start slowly come last; all other
    engines are sorted by `tuning_order`.

    >>> sets = list_replica_sets(["torch-compile", "torch-eager", "openvino"], [(2, 1), (1, 2)])
    >>> [str(replica_set) for replica_set in sets][:4]
    ['openvino 2x1', 'torch-eager 2x1', 'openvino 1x2', 'torch-eager 1x2']
    """
    if not engines or not places:
        raise TesseraError(
            "tuning requires at least one engine and one placement",
            got=f"{len(engines)} engines, {len(places)} placements",
        )
    ordered = sorted(engines, key=lambda name: ENGINES[name].tuning_order if name in ENGINES else math.inf)
    sets = [
        ReplicaSet(engine=engine, replicas=replicas, threads=threads, device=device)
        for replicas, threads in places
        for engine in ordered
        for device in devices
        if engine not in ENGINES or ENGINES[engine].supports_device(device)
    ]
    return sorted(sets, key=lambda replica_set: replica_set.slow_start)


MIN_SCORE = 0.75  # fraction of the best score below which a candidate is dropped after its first burst
MIN_STEP_SCORE = 0.95  # minimum score relative to the previous batch size for trying the next size
MAX_OPEN_CANDIDATES = 8  # maximum number of candidates that are loaded at the same time
FIRST_RUNG_BURSTS = 3  # bursts per candidate in the first rung
SCREENING_SHARE = 0.6  # fraction of the budget for screening


@dataclass(frozen=True, slots=True)
class Burst:
    """One short measurement of a candidate: images per second, and the latency of every batch in seconds."""

    rate: float
    latencies: tuple[float, ...]


class CandidateRunner(Protocol):
    """Interface that opens a candidate, runs bursts of it, and closes it."""

    def open(self, candidate: TuningCandidate) -> None: ...

    def run_burst(self, candidate: TuningCandidate) -> Burst: ...

    def close(self, candidate: TuningCandidate) -> None: ...

    def is_memory_low(self) -> bool:
        """Return whether there is too little free memory to open one more candidate."""


@dataclass(slots=True, kw_only=True)
class CandidateResult:
    """The result of a candidate: screening burst, bursts of the rounds, number of rungs, reason for being dropped.

    `tried` is False for a candidate that was never started; `out_of_time` tells whether time was the reason.

    A candidate with more rungs ranks higher regardless of its rate: rates measured at different times are not
    comparable.
    """

    candidate: TuningCandidate
    screening: Burst | None = None
    rounds: list[Burst] = field(default_factory=list)
    rungs: int = 0
    dropped: str = ""
    tried: bool = True
    out_of_time: bool = False

    @property
    def bursts(self) -> list[Burst]:
        """The bursts that determine the result: from the rounds, or the screening burst if there were no rounds."""
        return self.rounds or ([self.screening] if self.screening else [])

    @property
    def rate(self) -> float:
        """Median images per second over the bursts."""
        return statistics.median(burst.rate for burst in self.bursts)

    @property
    def latency(self) -> float:
        """The 90th percentile of the batch latencies in seconds."""
        return float(np.quantile([latency for burst in self.bursts for latency in burst.latencies], 0.9))


class Race:
    """A race of candidates: bursts are interleaved until one candidate is left or the time is up."""

    def __init__(
        self,
        runner: CandidateRunner,
        goal: TuningGoal,
        *,
        budget: float,
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._runner, self._goal, self._clock, self._say = runner, goal, clock, say
        self._random = random.Random(seed)
        self._began, self._budget = clock(), budget
        self._results: list[CandidateResult] = []
        self._screening_seconds: dict[str, float] = {}  # duration of the last screening of each engine
        self._open: list[CandidateResult] = []

    def run(self, replica_sets: Sequence[ReplicaSet], batches: Sequence[int]) -> list[CandidateResult]:
        """Run the race; return the results of all candidates, best first. Unmeasured candidates come last."""
        try:
            self._screen(replica_sets, self._goal.order_batch_sizes(tuple(batches)))
            self._run_rounds()
        finally:
            for result in list(self._open):
                self._drop(result, result.dropped)
        return sorted(self._results, key=lambda result: (not result.bursts, -result.rungs, -self._score(result)))

    def _score(self, result: CandidateResult) -> float:
        return self._goal.score(result.rate, result.latency) if result.bursts else 0.0

    def _compute_spent_share(self) -> float:
        return (self._clock() - self._began) / self._budget

    def _screen(self, replica_sets: Sequence[ReplicaSet], size_orders: Sequence[Sequence[int]]) -> None:
        """Run the first batch size of every replica set, then other batch sizes of the best sets.

        Engines that start slowly are screened last.
        """
        first = size_orders[0][0]
        for slow in (False, True):
            selected = [replica_set for replica_set in replica_sets if replica_set.slow_start is slow]
            starts = {
                replica_set: self._screen_candidate(TuningCandidate(replica_set=replica_set, batch=first))
                for replica_set in selected
            }
            self._screen_other_batches(starts, size_orders, first)

    def _screen_other_batches(
        self, starts: Mapping[ReplicaSet, CandidateResult], size_orders: Sequence[Sequence[int]], first: int
    ) -> None:
        best = max(map(self._score, self._results), default=0.0)
        for replica_set, start in sorted(starts.items(), key=lambda pair: -self._score(pair[1])):
            is_competitive = bool(start.bursts) and self._score(start) >= MIN_SCORE * best
            why = f"{'too slow' if start.bursts else 'did not run'} at batch {first}" if start.tried else ""
            for sizes in size_orders:
                before = start
                for batch in sizes[sizes[0] == first :]:
                    if not is_competitive:
                        self._add_untried(TuningCandidate(replica_set=replica_set, batch=batch), why)
                        continue
                    here = self._screen_candidate(TuningCandidate(replica_set=replica_set, batch=batch))
                    if not self._should_try_next_size(here, before):
                        break
                    before = here

    def _should_try_next_size(self, here: CandidateResult, before: CandidateResult) -> bool:
        """Return whether to try the next batch size: the score did not fall much from size `before` to size `here`."""
        return here in self._open and self._score(here) > MIN_STEP_SCORE * self._score(before)

    def _add_result(self, result: CandidateResult) -> CandidateResult:
        self._results.append(result)
        return result

    def _add_untried(self, candidate: TuningCandidate, why: str = "") -> CandidateResult:
        """Add a candidate that is not started, for a reason; without one, because no time is left."""
        dropped = f"not tried: {why or 'no time left'}"
        return self._add_result(CandidateResult(candidate=candidate, dropped=dropped, tried=False, out_of_time=not why))

    def _screen_candidate(self, candidate: TuningCandidate) -> CandidateResult:
        """Run the first burst of a candidate, unless it would exceed the time for screening.

        A candidate is expected to take as long as the last candidate of its engine.
        """
        expected = self._screening_seconds.get(candidate.replica_set.engine, 0.0)
        if self._compute_spent_share() + expected / self._budget > SCREENING_SHARE:
            return self._add_untried(candidate)
        began = self._clock()
        self._say(f"{candidate}: first burst")
        result = self._add_result(CandidateResult(candidate=candidate))
        try:
            while self._open and (len(self._open) >= MAX_OPEN_CANDIDATES or self._runner.is_memory_low()):
                self._drop(min(self._open, key=self._score), "slowest open candidate when memory was low")
            self._runner.open(candidate)
            self._open.append(result)
            result.screening = self._runner.run_burst(candidate)
        except TesseraError as error:
            self._drop(result, f"does not run: {error}")
            return result
        finally:
            self._screening_seconds[candidate.replica_set.engine] = self._clock() - began
        best = max(map(self._score, self._results))
        for slow in [result for result in self._open if self._score(result) < MIN_SCORE * best]:
            self._drop(slow, "too slow in its first burst")
        return result

    def _drop(self, result: CandidateResult, why: str) -> None:
        result.dropped = why
        if result in self._open:
            self._open.remove(result)
            self._runner.close(result.candidate)

    def _run_rounds(self) -> None:
        """Run rungs of interleaved bursts; the better half of the candidates continues to the next rung."""
        bursts = FIRST_RUNG_BURSTS
        # The first rung runs even if screening took all of the time, because screening bursts are not interleaved.
        while len(self._open) > 1 and (self._compute_spent_share() < 1 or bursts == FIRST_RUNG_BURSTS):
            for number in range(bursts):
                self._say(f"{len(self._open)} candidates, burst {number + 1} of {bursts}")
                for result in self._random.sample(self._open, len(self._open)):
                    if self._compute_spent_share() >= 1 and result.rounds:
                        continue
                    self._run_burst(result)
            for result in self._open:
                result.rungs += 1
            ranked = sorted(self._open, key=self._score, reverse=True)
            for result in ranked[(len(ranked) + 1) // 2 :]:
                self._drop(result, "in the slower half of a round")
            bursts *= 2

    def _run_burst(self, result: CandidateResult) -> None:
        try:
            result.rounds.append(self._runner.run_burst(result.candidate))
        except TesseraError as error:
            self._drop(result, f"failed: {error}")


TUNING_GOALS = ("throughput", "latency")
BEYOND_BOUND_SCALE = 1e-9  # scale of scores beyond the latency bound, so that they are below all scores within it


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningGoal:
    """The score by which candidates are compared; higher is better.

    Every candidate within `max_latency` (seconds) scores higher than every candidate beyond it. Beyond it, a lower
    latency scores higher. Latency is the 90th percentile: a few bursts do not determine higher percentiles.

    >>> goal = TuningGoal(kind="throughput", max_latency=0.05)
    >>> goal.score(100.0, 0.04)
    100.0
    >>> goal.score(900.0, 0.2) < goal.score(100.0, 0.08) < goal.score(0.1, 0.05)
    True
    """

    kind: str = "throughput"
    max_latency: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in TUNING_GOALS:
            raise TesseraError("unknown --goal", got=self.kind, allowed=TUNING_GOALS)
        if self.max_latency is not None and self.max_latency <= 0:
            raise TesseraError("invalid --max-latency", got=self.max_latency, allowed="above 0")

    def allows(self, latency: float) -> bool:
        """Return whether a latency in seconds is within the latency bound; True if there is no bound."""
        return self.max_latency is None or latency <= self.max_latency

    def score(self, rate: float, latency: float) -> float:
        """Return the score of a rate in images/s and a latency in seconds."""
        if self.max_latency is not None and latency > self.max_latency:
            return BEYOND_BOUND_SCALE * self.max_latency / latency
        return rate if self.kind == "throughput" else 1 / latency

    def score_burst(self, burst: Burst) -> float:
        """Return the score of one burst, by its rate and the 90th percentile of its latencies."""
        return self.score(burst.rate, float(np.quantile(burst.latencies, 0.9)))

    def order_batch_sizes(self, batches: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """Return sequences of batch sizes to try in order: from a likely best size to larger and to smaller sizes.

        >>> TuningGoal().order_batch_sizes((1, 2, 4, 8, 16)), TuningGoal(kind="latency").order_batch_sizes((4, 1, 2))
        (((4, 8, 16), (2, 1)), ((1, 2, 4),))
        """
        sizes = tuple(sorted(set(batches)))
        if self.kind == "latency" or self.max_latency is not None:
            return (sizes,)
        middle = len(sizes) // 2
        return tuple(order for order in (sizes[middle:], sizes[:middle][::-1]) if order)
