"""Run cases one after the other, launch after launch; every finished one is in the store at once.

The cases are gone through once per launch, rather than each case being launched several times in a row: the
launches of a case are then spread over the whole run, so that the machine's slow drift is part of their spread and
not mistaken for a change. After the first pass there is already a result for every case.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tessera.errors import TesseraError
from tessera.launch import Workers
from tessera.measure.environment import environment
from tessera.measure.sampler import joined
from tessera.results.figures import time_metrics
from tessera.results.record import Case, Metric, Record, Status, merge_launches, record_of_error
from tessera.results.run import Run
from tessera.results.store import Store
from tessera.suites.crews import Crews
from tessera.suites.features import feature
from tessera.suites.plan import Plan


class Listener(Protocol):
    """Who wants to know how a run goes on."""

    def begins(self, case: Case, launch: int) -> None: ...

    def ends(self, record: Record, launch: int) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How many cases ended how, and how many have not all of their launches within the budget."""

    statuses: Counter[Status]
    left: int

    @property
    def broken(self) -> int:
        return self.statuses["failed"] + self.statuses["timed_out"]


def run_plan(plan: Plan, store: Store, run: Run, listener: Listener, *, resume: bool = False) -> Outcome:
    """Go through the plan; one failed case never stops the others.

    Inside a job every rank comes here and follows rank 0, whose store alone counts.
    """
    done = _finished(store, run) if resume else {}
    parts = {key: [record] for key, record in done.items()}
    deadline = time.monotonic() + plan.budget if plan.budget is not None else None
    with Crews(plan.launch, plan.cases) as crews:
        for launch in range(1, plan.launches + 1):
            if launch > 1:
                crews.restart()
            for case in plan.cases:
                earlier = done.get(case.key)
                complete = earlier is not None and _complete(earlier, launch)
                late = deadline is not None and bool(done) and time.monotonic() + plan.longest > deadline
                complete, late = _as_rank_0(crews.own, (complete, late))
                if complete:
                    continue
                if late:
                    return _outcome(plan, done)
                listener.begins(case, launch)
                record = _one(crews, case, plan)
                parts.setdefault(case.key, []).append(record)
                done[case.key] = merge_launches(parts[case.key])
                store.add(run, done[case.key])
                listener.ends(record, launch)
    return _outcome(plan, done)


def made(plan: Plan, store: Store, run: Run) -> int:
    """How many launches of the plan need not be made, because the run holds them."""
    found = _finished(store, run)
    kept = (found[case.key] for case in plan.cases if case.key in found)
    return sum(plan.launches if _complete(record, plan.launches) else len(record.launches) for record in kept)


def _finished(store: Store, run: Run) -> dict[str, Record]:
    """The records of a run that are not tried again, by key."""
    return {record.case.key: record for record in store.records(run) if record.status in ("ok", "refused")}


def _complete(record: Record, launches: int) -> bool:
    """Whether there is nothing left to launch; what takes no samples, such as a validation, has no more to give."""
    return record.status != "ok" or not record.launches or len(record.launches) >= launches


def _as_rank_0(workers: Workers, decision: tuple[bool, bool]) -> tuple[bool, bool]:
    """What rank 0 of a job decided; outside a job there is nobody to ask."""
    if workers.job is None:
        return decision
    agreed: tuple[bool, bool] = workers.run("tessera.suites.worker:told", decision)[0]
    return agreed


def _one(crews: Crews, case: Case, plan: Plan) -> Record:
    """One launch of one case as a record, whatever happens to it."""
    limit = plan.launch.time_limit
    if limit is None and plan.sampling.iterations is None:  # so many iterations may take any time
        limit = 60.0 + 20 * plan.longest
    began = time.monotonic()
    try:
        doors = feature(case.feature)
        records: list[Record] = crews.of(case).run(
            "tessera.suites.worker:measure", doors.run, doors.preload, case, plan.sampling, time_limit=limit
        )
        return _joined(records)
    except (TesseraError, OSError) as error:
        return replace(record_of_error(case, error), environment=environment(), seconds=time.monotonic() - began)


def _joined(records: Sequence[Record]) -> Record:
    """The ranks' records as one: sample by sample, unless the ranks have joined them already, or took none."""
    first = records[0]
    if len(records) == 1 or not first.launches or first.launches[0].ranks:
        return first
    samples = joined([record.launches[0] for record in records])
    return replace(first, launches=(samples,), metrics=_of_joined(first.metrics, time_metrics(samples)))


def _of_joined(metrics: Mapping[str, Metric], times: Mapping[str, Metric]) -> dict[str, Metric]:
    """One rank's metrics with the joined times; what is per second, or a share of it, follows them."""
    if "time" not in metrics:
        return dict(metrics)
    scale = metrics["time"].value / times["time"].value
    rates = {
        name: replace(metric, value=metric.value * scale)
        for name, metric in metrics.items()
        if metric.unit.endswith("/s") or name == "roofline"
    }
    return {**metrics, **rates, **{name: metric for name, metric in times.items() if name in metrics}}


def _outcome(plan: Plan, done: dict[str, Record]) -> Outcome:
    found: Sequence[Record] = [done[case.key] for case in plan.cases if case.key in done]
    complete = sum(_complete(record, plan.launches) for record in found)
    return Outcome(statuses=Counter(record.status for record in found), left=len(plan.cases) - complete)
