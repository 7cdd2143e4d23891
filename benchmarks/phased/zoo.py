"""Exactness of public networks under every schedule, with a quarter of their weights as the budget.

Each network (see `zoo_run` for where they come from) has a small configuration and random weights, runs three passes,
and is compared with plain torch: bit-equal or within 1e-6 of the largest value; within 1e-4 for `data-parallel`, which
may split a mini-batch. If a quarter of the weights is less than the memory of the two largest modules in a row, the
budget is that memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from zoo_run import ZooRun

TIME_LIMIT_SECONDS = 400.0  # per network


def run(say: Callable[[str], None], *, small: bool = False) -> dict[str, Any]:
    worker = Path(__file__).with_name("zoo_worker.py")
    results, missing = ZooRun("phased", worker, TIME_LIMIT_SECONDS, say, ["timm resnet"] if small else []).run()
    counts = Counter(result["verdict"] for result in results)
    runnable = len(results) - counts["not runnable"]
    lines = [
        f"{runnable} public networks under every schedule: {counts['exact']} exact, {counts['wrong']} wrong,"
        f" {counts['crashed']} failed; {counts['not runnable']} do not run in plain torch here"
    ]
    lines += [f"  {r['verdict']}: {r['name']}: {r['detail']}" for r in results if r["verdict"] != "exact"]
    commits = Counter(result["commit"] for result in results)
    lines += ["  commits of the code: " + ", ".join(f"{commit} ({count})" for commit, count in commits.items())]
    return {"results": results, "not run": missing, "lines": lines}
