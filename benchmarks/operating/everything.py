"""Every operator of a backend, forward and backward, of some sizes: how long it takes, how sure the figures are."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from tessera.measure.samples import Sampling
from tessera.operators.backends import expressions
from tessera.operators.cases import cases
from tessera.results.record import Case, Record
from tessera.results.store import Store
from tessera.suites.plan import Plan
from tessera.suites.run import run_plan

TARGET = 0.03
SAMPLING = Sampling(target=TARGET, budget=0.4, min_samples=6)  # six samples are the fewest with an interval


class Count:
    """Says how far it has come."""

    def __init__(self, total: int, say: Callable[[str], None]) -> None:
        self.total, self.say, self.done = total, say, 0

    def begins(self, case: Case, launch: int) -> None:
        pass

    def ends(self, record: Record, launch: int) -> None:
        self.done += 1
        if self.done % 100 == 0 or record.status != "ok":
            self.say(f"{self.done}/{self.total} {record.case.key} {record.status} {record.reason}")


def all_operators(backend: str, sizes: Sequence[str], say: Callable[[str], None]) -> dict[str, Any]:
    names = sorted(expressions(backend))
    wanted = cases(names, backend=[backend], size=sizes, passes=["forward", "backward"], fusion=())
    plan = Plan(cases=tuple(wanted), sampling=SAMPLING)
    began = time.monotonic()
    with Store(":memory:") as store:
        run = store.start_run("all")
        run_plan(plan, store, run, Count(len(wanted), say))
        records = list(store.records(run))
    seconds = time.monotonic() - began
    measured = [record for record in records if record.status == "ok"]
    wide = [record for record in measured if (record.launches[0].interval or 1.0) > TARGET]
    others = [f"{record.case.key}: {record.status}: {record.reason}" for record in records if record.status != "ok"]
    operators = {record.case.name for record in measured}
    of = f"{backend}, {' and '.join(sizes)}"
    lines = [
        f"{len(operators)} operators of {of}: {len(measured)} cases measured in {seconds / 60:.1f} minutes",
        f"relative interval of the median at most {TARGET:.0%}: {1 - len(wide) / len(measured):.1%} of the cases",
        f"not: {', '.join(_short(record) for record in wide) or 'none'}",
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


def _short(record: Record) -> str:
    params = record.case.params
    interval = record.launches[0].interval
    reached = "unknown" if interval is None else f"{interval:.1%}"
    return f"{record.case.name} {params['size']} {params['pass']} ({reached})"
