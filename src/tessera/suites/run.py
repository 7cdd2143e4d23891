"""Run the cases of a plan in several passes, one launch per case and pass, and store each launch when it is finished.

The launches of a case are spread over the whole run, instead of following each other directly. Slow drift of the
machine is then part of their spread and is not mistaken for a change. After the first pass every case has a result.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tessera.errors import TesseraError
from tessera.launch import Workers
from tessera.launch.worker import RunContext
from tessera.measure.environment import describe_environment
from tessera.measure.joins import join_samples
from tessera.results.metrics import make_time_metrics
from tessera.results.record import Case, Metric, Record, Status, make_error_record, merge_launches
from tessera.results.store import Run, Store
from tessera.suites.features import get_feature
from tessera.suites.plan import RunPlan
from tessera.suites.worker_pools import WorkerPools


class RunListener(Protocol):
    """The interface of objects that receive the progress of a run."""

    def on_start(self, case: Case, launch: int) -> None:
        """Handle the start of one launch of a case."""

    def on_end(self, record: Record, launch: int) -> None:
        """Handle the end of one launch; `record` holds this launch only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """The number of cases by status, and the number of cases that lack launches because the budget was spent."""

    statuses: Counter[Status]
    unfinished: int


def run_plan(plan: RunPlan, store: Store, run: Run, listener: RunListener, *, resume: bool = False) -> RunOutcome:
    """Run the cases of a plan and store their records; a failed case does not stop the run.

    With `resume`, cases that are complete in the stored run are skipped. Inside a job every rank calls this function
    and follows the decisions of rank 0; only the store of rank 0 is used.
    """
    done = _load_finished(store, run) if resume else {}
    parts = {key: [record] for key, record in done.items()}
    deadline = time.monotonic() + plan.budget if plan.budget is not None else None
    with WorkerPools(plan.launch, plan.cases, plan.settings) as pools:
        for launch in range(1, plan.launches + 1):
            if launch > 1:
                pools.restart()
            for case in plan.cases:
                earlier = done.get(case.key)
                complete = earlier is not None and _is_complete(earlier, launch)
                late = deadline is not None and bool(done) and time.monotonic() + plan.max_case_seconds > deadline
                complete, late = _follow_rank_0(pools.default, (complete, late))
                if complete:
                    continue
                if late:
                    return _count_outcome(plan, done)
                listener.on_start(case, launch)
                record = _run_case(pools, case, plan)
                parts.setdefault(case.key, []).append(record)
                done[case.key] = merge_launches(parts[case.key])
                store.add(run, done[case.key])
                listener.on_end(record, launch)
    return _count_outcome(plan, done)


def count_stored_launches(plan: RunPlan, store: Store, run: Run) -> int:
    """Return how many launches of the plan are stored in the run already."""
    finished = _load_finished(store, run)
    stored = (finished[case.key] for case in plan.cases if case.key in finished)
    return sum(plan.launches if _is_complete(record, plan.launches) else len(record.launches) for record in stored)


def _load_finished(store: Store, run: Run) -> dict[str, Record]:
    """Load the stored records of a run that a resumed run does not repeat, by case key."""
    return {record.case.key: record for record in store.read_records(run) if record.status in ("ok", "refused")}


def _is_complete(record: Record, launches: int) -> bool:
    """Return whether a case has all its launches. A case without samples, such as a validation, has one launch."""
    return record.status != "ok" or not record.launches or len(record.launches) >= launches


def _follow_rank_0(workers: Workers, decision: tuple[bool, bool]) -> tuple[bool, bool]:
    """Return the decision of rank 0 if this process is a rank of a job, otherwise `decision`."""
    if workers.job is None:
        return decision
    agreed: tuple[bool, bool] = workers.run("tessera.suites.worker:echo", decision)[0]
    return agreed


def _run_case(pools: WorkerPools, case: Case, plan: RunPlan) -> Record:
    """Run one launch of one case; an error is returned as a record with an error status."""
    limit = plan.launch.time_limit
    if limit is None and plan.is_bounded:
        limit = 60.0 + 20 * plan.max_case_seconds
    began = time.monotonic()
    try:
        feature, context = get_feature(case.feature), RunContext(launch=plan.launch, session=pools.get_session(case))
        records: list[Record] = pools.get_workers(case).run(
            "tessera.suites.worker:measure_case", feature, case, plan.sampling, context, time_limit=limit
        )
        return _join_ranks(records)
    except (TesseraError, OSError) as error:
        return replace(
            make_error_record(case, error), environment=describe_environment(), seconds=time.monotonic() - began
        )


def _join_ranks(records: Sequence[Record]) -> Record:
    """Join the records of all ranks sample by sample; return the first record if it is joined or has no samples."""
    first = records[0]
    if len(records) == 1 or not first.launches or first.launches[0].ranks:
        return first
    samples = join_samples([record.launches[0] for record in records])
    return replace(first, launches=(samples,), metrics=_rescale_metrics(first.metrics, make_time_metrics(samples)))


def _rescale_metrics(metrics: Mapping[str, Metric], times: Mapping[str, Metric]) -> dict[str, Metric]:
    """Replace the times in one rank's metrics by the joined times, and scale rates and roofline share to match."""
    if "time" not in metrics:
        return dict(metrics)
    scale = metrics["time"].value / times["time"].value
    rates = {
        name: replace(metric, value=metric.value * scale)
        for name, metric in metrics.items()
        if metric.unit.endswith("/s") or name == "roofline"
    }
    return {**metrics, **rates, **{name: metric for name, metric in times.items() if name in metrics}}


def _count_outcome(plan: RunPlan, done: Mapping[str, Record]) -> RunOutcome:
    records = [done[case.key] for case in plan.cases if case.key in done]
    complete = sum(_is_complete(record, plan.launches) for record in records)
    return RunOutcome(statuses=Counter(record.status for record in records), unfinished=len(plan.cases) - complete)
