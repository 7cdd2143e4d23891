"""Tune a network for this machine: race candidates on replicas, and build a record of every measured candidate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

from tessera.device import CPU
from tessera.errors import Refused, TesseraError
from tessera.inference.bench import BENCHMARK_VERSION, join_environments
from tessera.inference.cases import make_case
from tessera.inference.engines import ENGINES, get_engine_entry
from tessera.inference.measures import compute_latency_metrics
from tessera.inference.replicas.placement import Placement
from tessera.inference.replicas.replica_pool import LoadedNetwork, ReplicaPool
from tessera.inference.settings import Settings
from tessera.inference.tune.pareto import find_pareto_front
from tessera.inference.tune.race import (
    Burst,
    CandidateResult,
    Race,
    ReplicaSet,
    TuningCandidate,
    TuningGoal,
    list_replica_sets,
)
from tessera.launch import LaunchConfig
from tessera.measure.memory_limits import get_available_bytes
from tessera.measure.samples import Samples
from tessera.measure.statistics import Estimate, estimate_median
from tessera.results.metrics import make_metrics
from tessera.results.record import Case, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningResult:
    """The result of a tuning: all candidates, best first, and the records of the measured candidates."""

    goal: TuningGoal
    results: tuple[CandidateResult, ...]
    cases: Mapping[TuningCandidate, Case]
    records: tuple[Record, ...]

    @property
    def measured_candidates(self) -> tuple[CandidateResult, ...]:
        """The candidates with at least one burst."""
        return tuple(result for result in self.results if result.bursts)

    @property
    def best(self) -> CandidateResult:
        return self.results[0]

    @property
    def tried(self) -> int:
        """The number of candidates that were started."""
        return sum(result.tried for result in self.results)

    def compare_with_second(self) -> tuple[CandidateResult, Estimate] | None:
        """Return the second-best candidate, and the score of the best one relative to it.

        The ratio is the median over the interleaved bursts of both. None if they have fewer than two bursts each.
        """
        if len(self.measured_candidates) < 2:
            return None
        best, second = self.measured_candidates[:2]
        scores = ([self.goal.score_burst(burst) for burst in result.rounds] for result in (best, second))
        ratios = [ours / theirs for ours, theirs in zip(*scores, strict=False)]
        return (second, estimate_median(ratios)) if len(ratios) > 1 else None

    @property
    def within_bound(self) -> bool:
        """Whether the best candidate meets the latency bound; if it does not, no candidate does."""
        return self.goal.allows(self.best.latency)

    def find_front(self) -> list[CandidateResult]:
        """Return the candidates on the Pareto front of images per second and latency."""
        return find_pareto_front((result, result.rate, result.latency) for result in self.measured_candidates)


def find_usable_engines(
    settings: Settings,
    requested: Sequence[str] = (),
    say: Callable[[str], None] = lambda text: None,
    devices: Sequence[str] = (CPU,),
) -> list[str]:
    """Return the requested engines (default: all) that support the settings on this machine, on one of `devices`.

    Engines that are omitted are reported with `say`.

    Raises:
        TesseraError: a requested engine does not support the settings.
    """
    usable = []
    candidates = [name for name, entry in ENGINES.items() if any(map(entry.supports_device, devices))]
    for name in requested or candidates:
        if reason := get_engine_entry(name).find_missing():
            if requested:
                raise TesseraError(f"engine {name} cannot run here: {reason}")
            say(f"{name} is omitted: {reason}")
            continue
        try:
            supported = [device for device in devices if get_engine_entry(name).supports_device(device)]
            replace(settings, engine=name, device=(supported or devices)[0])
        except Refused as refused:
            if requested:
                raise
            say(f"{name} is omitted: {refused}")
            continue
        usable.append(name)
    return usable


def tune_network(
    settings: Settings,
    goal: TuningGoal,
    *,
    engines: Sequence[str],
    places: Sequence[tuple[int, int]],
    batches: Sequence[int],
    budget: float,
    devices: Sequence[str] = (CPU,),
    launch: LaunchConfig | None = None,
    env: Mapping[str, str] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> TuningResult:
    """Race all combinations of engine, placement, device and batch size for `budget` seconds.

    If an engine cannot run the network, its candidates are dropped.

    Raises:
        TesseraError: no candidate ran.
    """
    with ReplicaRunner(settings, launch=launch, env=env) as runner:
        results = Race(runner, goal, budget=budget, say=say).run(list_replica_sets(engines, places, devices), batches)
        cases = {result.candidate: runner.build_case(result.candidate) for result in results}
        environments = dict(runner.environments)
    if not results[0].bursts:
        raise TesseraError(f"no candidate ran; {results[0].candidate}: {results[0].dropped}")
    records = tuple(
        _build_record(result, cases[result.candidate], environments[result.candidate.replica_set])
        for result in results
        if result.bursts
    )
    return TuningResult(goal=goal, results=tuple(results), cases=cases, records=records)


def _build_record(result: CandidateResult, case: Case, environment: Mapping[str, Any]) -> Record:
    """Build the record of a candidate, with its bursts as samples."""
    latencies = [latency for burst in result.bursts for latency in burst.latencies]
    ended = result.dropped or "remained to the end of the race"
    return Record(
        case=case,
        version=f"{BENCHMARK_VERSION} tuning",
        unit="images/s",
        direction="higher",
        launches=(Samples(values=tuple(burst.rate for burst in result.bursts), stopped_by=ended),),
        metrics=make_metrics({"throughput": result.rate}) | compute_latency_metrics(latencies),
        environment=environment,
        details={"tuning": {"rungs": result.rungs, "left": result.dropped}},
        notes=(f"tuning: {ended}",),
    )


READ_ENVIRONMENT_FUNCTION = "tessera.inference.replicas.replica_worker:read_environment"
BURST_SECONDS = 0.5  # duration of a burst; one batch if a batch takes longer
# A batch shorter than this limit first runs once untimed: threads of the previous candidate may still spin.
LEAD_IN_LIMIT_SECONDS = 0.3
MIN_FREE_MEMORY_SHARE = 0.2  # fraction of the initially free memory below which no further candidate is opened


class ReplicaRunner:
    """Runner of tuning candidates on replica processes. Candidates share exported files.

    The outputs of each engine on each device are compared with torch's once, at its first candidate.
    """

    def __init__(
        self, settings: Settings, *, launch: LaunchConfig | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        self._settings, self._launch, self._env = settings, launch, env or {}
        self._pools: dict[ReplicaSet, ReplicaPool] = {}
        self._open: dict[TuningCandidate, LoadedNetwork] = {}
        self._checked: set[tuple[str, str]] = set()
        self.environments: dict[ReplicaSet, Mapping[str, Any]] = {}
        self._free = get_available_bytes()

    def __enter__(self) -> ReplicaRunner:
        self._stack = ExitStack()
        self._folder = self._stack.enter_context(TemporaryDirectory(prefix="tessera-tune-"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for pool in self._pools.values():
                pool.__exit__(kind, error, trace)
        finally:
            self._pools.clear()
            self._stack.close()

    def _build_settings(self, candidate: TuningCandidate) -> Settings:
        chosen = candidate.replica_set
        return replace(self._settings, engine=chosen.engine, device=chosen.device, batch_size=candidate.batch)

    def _build_placement(self, replica_set: ReplicaSet) -> Placement:
        return Placement(
            num_replicas=replica_set.replicas, cores_per_replica=replica_set.threads, env=self._env, force=True
        )

    def build_case(self, candidate: TuningCandidate) -> Case:
        """Return the case that repeats a candidate alone, with `force` if it requires more cores than available."""
        return make_case(
            {**self._build_settings(candidate).params(), **self._build_placement(candidate.replica_set).params()}
        )

    def open(self, candidate: TuningCandidate) -> None:
        """Load a candidate; start the processes of its replica set if they are not running."""
        replica_set = candidate.replica_set
        settings = self._build_settings(candidate)
        if replica_set not in self._pools:
            self._pools[replica_set] = ReplicaPool(
                self._build_placement(replica_set), self._launch, folder=self._folder
            ).__enter__()
        try:
            check = (replica_set.engine, replica_set.device) not in self._checked
            self._open[candidate] = self._pools[replica_set].load(settings, str(candidate), check=check)
            environments = self._pools[replica_set].run(READ_ENVIRONMENT_FUNCTION, str(candidate))
            self.environments[replica_set] = join_environments(environments)
        except BaseException:
            self._stop_if_idle(replica_set)
            raise
        self._checked.add((replica_set.engine, replica_set.device))

    def run_burst(self, candidate: TuningCandidate) -> Burst:
        """Run a candidate for `BURST_SECONDS` seconds; return its rate and latencies."""
        network = self._get_ready(candidate)
        if network.reports[0].batch_seconds < LEAD_IN_LIMIT_SECONDS:
            network.run_window(batches=1, seconds=0.0)
        window = network.run_window(batches=1, seconds=BURST_SECONDS)
        while window.seconds <= 0:  # the batches of the replicas did not overlap in time
            window = network.run_window(batches=2, seconds=BURST_SECONDS)
        return Burst(window.rate, window.latencies)

    def close(self, candidate: TuningCandidate) -> None:
        """Unload a candidate; stop the processes of its replica set if it has no other open candidate."""
        network = self._open.pop(candidate, None)
        if network is not None and not self._stop_if_idle(candidate.replica_set):
            network.unload()

    def is_memory_low(self) -> bool:
        return get_available_bytes() < MIN_FREE_MEMORY_SHARE * self._free

    def _get_ready(self, candidate: TuningCandidate) -> LoadedNetwork:
        """Return the network of an open candidate; load it again if its replicas were restarted after a death."""
        network = self._open[candidate]
        if not network.is_ready():
            network = self._pools[candidate.replica_set].load(network.settings, network.name, check=False)
            self._open[candidate] = network
        return network

    def _stop_if_idle(self, replica_set: ReplicaSet) -> bool:
        """Stop the processes of a replica set that has no open candidate; return whether they were stopped."""
        if any(candidate.replica_set == replica_set for candidate in self._open):
            return False
        pool = self._pools.pop(replica_set, None)
        if pool is not None:
            pool.__exit__(None, None, None)
        return True
