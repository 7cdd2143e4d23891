"""Store two runs of the same case and ask whether the second is slower."""

import tempfile
from pathlib import Path

from tessera.launch import LaunchConfig
from tessera.measure.samples import Sampling
from tessera.operators.cases import cases
from tessera.results.compare import compare
from tessera.results.store import Store
from tessera.suites.plan import Plan
from tessera.suites.run import run_plan


class Quiet:
    def begins(self, case, launch):
        pass

    def ends(self, record, launch):
        print(f"launch {launch} of {record.case.name}: {record.status}")


if __name__ == "__main__":
    plan = Plan(
        cases=tuple(cases(["add"], size=["small"], passes=["forward"])),
        sampling=Sampling(budget=0.1),
        launch=LaunchConfig(),
        launches=4,
    )
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "results.sqlite") as store:
        runs = [store.start_run(name) for name in ("before", "after")]
        for run in runs:
            run_plan(plan, store, run, Quiet())
        found = compare(*(store.records(run) for run in runs))
        for case in found.cases:
            print(f"{case.key}: {case.verdict} ({case.judgement.why})")
