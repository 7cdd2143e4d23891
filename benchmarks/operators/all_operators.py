"""Benchmark of every operator of a backend, forward and backward: total time, and precision of the results."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from tessera.measure.samples import Sampling
from tessera.operators.backends import load_expressions
from tessera.operators.cases import cases
from tessera.results.record import Case, Record
from tessera.results.store import Store
from tessera.suites.plan import RunPlan
from tessera.suites.run import run_plan

TARGET_INTERVAL = 0.03
SAMPLING = Sampling(target=TARGET_INTERVAL, budget=0.4, min_samples=6)  # a confidence interval requires six samples


class ProgressLog:
    """A listener that logs the number of finished cases."""

    def __init__(self, total: int, log: Callable[[str], None]) -> None:
        self.total, self.log, self.done = total, log, 0

    def on_start(self, case: Case, launch: int) -> None:
        pass

    def on_end(self, record: Record, launch: int) -> None:
        self.done += 1
        if self.done % 100 == 0 or record.status != "ok":
            self.log(f"{self.done}/{self.total} {record.case.key} {record.status} {record.reason}")


def measure_all_operators(backend: str, sizes: Sequence[str], log: Callable[[str], None]) -> dict[str, Any]:
    names = sorted(load_expressions(backend))
    wanted = cases(names, backend=[backend], size=sizes, passes=["forward", "backward"], fusion=())
    plan = RunPlan(cases=tuple(wanted), sampling=SAMPLING)
    began = time.monotonic()
    with Store(":memory:") as store:
        run = store.start_run("all")
        run_plan(plan, store, run, ProgressLog(len(wanted), log))
        records = list(store.read_records(run))
    seconds = time.monotonic() - began
    measured = [record for record in records if record.status == "ok"]
    wide = [record for record in measured if (record.launches[0].interval or 1.0) > TARGET_INTERVAL]
    others = [f"{record.case.key}: {record.status}: {record.reason}" for record in records if record.status != "ok"]
    operators = {record.case.name for record in measured}
    of = f"{backend}, {' and '.join(sizes)}"
    lines = [
        f"{len(operators)} operators of {of}: {len(measured)} cases measured in {seconds / 60:.1f} minutes",
        f"relative interval of median within {TARGET_INTERVAL:.0%}: {1 - len(wide) / len(measured):.1%} of the cases",
        f"wider intervals: {', '.join(_format_record(record) for record in wide) or 'none'}",
        *others,
    ]
    return {
        "operators": len(operators),
        "cases": len(measured),
        "minutes": seconds / 60,
        "within": 1 - len(wide) / len(measured),
        "wide": [record.case.key for record in wide],
        "others": others,
        "lines": lines,
    }


def _format_record(record: Record) -> str:
    params = record.case.params
    interval = record.launches[0].interval
    reached = "unknown" if interval is None else f"{interval:.1%}"
    return f"{record.case.name} {params['size']} {params['pass']} ({reached})"
