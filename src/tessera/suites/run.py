"""Run cases one after the other, launch after launch; every finished one is in the store at once.

The cases are gone through once per launch, rather than each case being launched several times in a row: the
launches of a case are then spread over the whole run, so that the machine's slow drift is part of their spread and
not mistaken for a change. After the first pass there is already a result for every case.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tessera.errors import BenchmarkFailed, TesseraError, TimedOut
from tessera.launch import Workers
from tessera.measure.environment import environment
from tessera.measure.sampler import joined
from tessera.results.record import Case, Record, Status, merge_launches
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
    """How many cases ended how, and how many were not reached within the budget."""

    statuses: Counter[Status]
    left: int

    @property
    def broken(self) -> int:
        return self.statuses["failed"] + self.statuses["timed_out"]


def run_plan(plan: Plan, store: Store, run: Run, listener: Listener, *, resume: bool = False) -> Outcome:
    """Go through the plan; one failed case never stops the others.

    Inside a job every rank comes here and follows rank 0, whose store alone counts.
    """
    done = {r.case.key: r for r in store.records(run) if r.status in ("ok", "refused")} if resume else {}
    parts = {key: [record] for key, record in done.items()}
    deadline = time.monotonic() + plan.budget if plan.budget is not None else None
    with Crews(plan.launch) as crews:
        for launch in range(1, plan.launches + 1):
            if launch > 1:
                crews.restart()
            for case in plan.cases:
                earlier = done.get(case.key)
                complete = earlier is not None and (earlier.status != "ok" or len(earlier.launches) >= launch)
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


def _as_rank_0(workers: Workers, decision: tuple[bool, bool]) -> tuple[bool, bool]:
    """What rank 0 of a job decided; outside a job there is nobody to ask."""
    if workers.job is None:
        return decision
    agreed: tuple[bool, bool] = workers.run("tessera.suites.worker:told", decision)[0]
    return agreed


def _one(crews: Crews, case: Case, plan: Plan) -> Record:
    """One launch of one case as a record, whatever happens to it."""
    limit = plan.launch.time_limit or 60.0 + 20 * plan.longest
    began = time.monotonic()
    try:
        doors = feature(case.feature)
        records: list[Record] = crews.of(case).run(
            "tessera.suites.worker:measure", doors.run, doors.preload, case, plan.sampling, time_limit=limit
        )
    except TesseraError as error:
        status: Status = "refused"
        if isinstance(error, BenchmarkFailed):
            status = "timed_out" if isinstance(error, TimedOut) else "failed"
        return Record(
            case=case,
            status=status,
            reason=str(error),
            environment=environment(),
            seconds=time.monotonic() - began,
        )
    if len(records) == 1:
        return records[0]
    return replace(records[0], launches=(joined([record.launches[0] for record in records]),))


def _outcome(plan: Plan, done: dict[str, Record]) -> Outcome:
    found: Sequence[Record] = [done[case.key] for case in plan.cases if case.key in done]
    return Outcome(statuses=Counter(record.status for record in found), left=len(plan.cases) - len(found))
