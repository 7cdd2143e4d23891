"""Time to plan a convolution, to search for its fastest plan, and to plan a whole network, with cleared caches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tessera.coregrid.config import ShardLayout
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.cost.resharding import compute_reshard_cost
from tessera.coregrid.networks.layers import build_table, describe_network
from tessera.coregrid.networks.plan import plan_network
from tessera.coregrid.planning.halo import count_halo, plan_halo_runs
from tessera.coregrid.planning.plan import plan_one
from tessera.coregrid.search import plan_conv2d
from tessera.machine import load_machine
from tessera.measure.sampler import sample
from tessera.measure.samples import Sampling
from tessera.measure.statistics import estimate_median

MACHINE_NAME, BATCH_SIZE = "wormhole-n150", 16
LIMIT_SECONDS = {"plan": 5e-3, "search": 0.2, "search in slices": 0.2, "network": 3.0}  # seconds
# fits the core memory in no layout, so the search slices it
LARGE_CONVOLUTION = Convolution(
    batch=4, height=512, width=512, in_channels=64, out_channels=64, kernel=(3, 3), padding=((1, 1), (1, 1))
)


def run(say: Callable[[str], None]) -> dict[str, Any]:
    machine = load_machine(MACHINE_NAME)
    worst: dict[str, tuple[float, str]] = {}
    for row in build_table("resnet50", BATCH_SIZE):
        say(f"planning, {row.name}")
        for task, call in _build_calls(row.conv, machine).items():
            seconds = _measure_median(call, Sampling(budget=1.0, target=0.05))
            worst[task] = max(worst.get(task, (0.0, "")), (seconds, row.name))
    say("planning, a convolution in slices")
    sliced = _build_calls(LARGE_CONVOLUTION, machine)["search"]
    worst["search in slices"] = _measure_median(sliced, Sampling(budget=5.0, target=0.05)), "64 -> 64 on 512x512"
    say("planning, the network")
    whole = describe_network("resnet50", BATCH_SIZE)

    def plan_whole_network() -> None:
        clear_caches()
        plan_network(whole, machine)

    worst["network"] = _measure_median(plan_whole_network, Sampling(warmup=1, iterations=5)), "resnet50"
    times = {
        task: {"seconds": seconds, "of": name, "wanted": LIMIT_SECONDS[task]} for task, (seconds, name) in worst.items()
    }
    lines = [f"planning on {MACHINE_NAME}, batch {BATCH_SIZE}, uncached; the slowest convolution of ResNet-50"]
    for task, row in times.items():
        lines.append(f"  {task:16} {row['seconds'] * 1e3:8.1f} ms ({row['of']}), limit {row['wanted'] * 1e3:g} ms")
    return {"times": times, "lines": lines}


def _build_calls(conv: Convolution, machine: Any) -> dict[str, Callable[[], None]]:
    def plan() -> None:
        clear_caches()
        plan_one(conv, machine, layout=ShardLayout.HEIGHT)

    def search() -> None:
        clear_caches()
        plan_conv2d(conv, machine)

    return {"plan": plan, "search": search}


def clear_caches() -> None:
    """Clear the caches of halo plans and resharding costs."""
    for cached in (count_halo, plan_halo_runs, compute_reshard_cost):
        cached.cache_clear()


def _measure_median(call: Callable[[], None], sampling: Sampling) -> float:
    return estimate_median(sample(call, sampling).values).value
