"""Exactness of public networks on split images: output, input gradient, weight gradients and buffers in float64.

Every network (see `zoo_run` for where they come from) runs unmodified, with random weights and images, on in-process
ranks of two meshes in training and evaluation mode, and is compared with the unsplit network. Dropout and stochastic
depth are switched off, because in-process ranks share one random generator; a network that draws random numbers all the
same is not comparable. Networks that compute in float32 inside are compared with these casts made casts to float64.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from zoo_run import ZooRun

TIME_LIMIT_SECONDS = 400.0  # without a result


def run(say: Callable[[str], None], *, networks: Sequence[str] = ()) -> dict[str, Any]:
    zoo = ZooRun("halo", Path(__file__).with_name("zoo_worker.py"), TIME_LIMIT_SECONDS, say, networks)
    results, missing = zoo.run()
    lines = list(_summarise(results)) + ([f"  not run, because the time was up: {len(missing)}"] if missing else [])
    return {"results": results, "not run": missing, "lines": lines}


def _summarise(results: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield counts in all and per family, the worst error of each family, and all runs that are not exact."""
    families: dict[str, list[dict[str, Any]]] = {"all": list(results)}
    for result in results:
        families.setdefault(result["name"].split()[0], []).append(result)
    yield f"{'family':20} networks  runs  exact  wrong  crashed  not comparable  not runnable unsplit  largest error"
    for family, runs in families.items():
        counts = Counter(result["verdict"] for result in runs)
        compared = [result for result in runs if result["verdict"] != "not runnable"]
        names = {result["name"] for result in compared}
        refused = {result["name"] for result in runs} - names
        worst = max((result["error"] for result in compared if result["verdict"] == "exact"), default=0.0)
        yield (
            f"{family:20} {len(names):8} {len(compared):5} {counts['exact']:6} {counts['wrong']:6}"
            f" {counts['crashed']:8} {counts['not comparable']:15} {len(refused):21} {worst:14.1e}"
        )
    for result in results:
        if result["verdict"] != "exact":
            where = f"{result['name']} {result.get('mesh', '')} {result.get('mode', '')}"
            yield f"  {result['verdict']}: {where}: {result['detail']}"
    commits = Counter(result["commit"] for result in results)
    yield "  commits of the code: " + ", ".join(f"{commit} ({count} runs)" for commit, count in commits.items())
