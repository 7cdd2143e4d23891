"""How long it takes to plan a convolution, to search for its best plan, and to plan a whole network, uncached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tessera.coregrid.convolution import Convolution
from tessera.coregrid.cost.moves import reshard
from tessera.coregrid.networks.layers import network
from tessera.coregrid.networks.plan import plan_network
from tessera.coregrid.networks.tables import table
from tessera.coregrid.planning.haloing import halo_count, haloing_of
from tessera.coregrid.planning.plan import plan_one
from tessera.coregrid.planning.search import plan_conv2d
from tessera.coregrid.planning.sharding import ShardLayout
from tessera.machine import load_machine
from tessera.measure.sampler import sample
from tessera.measure.samples import Sampling
from tessera.measure.statistics import median_interval

MACHINE, BATCH = "wormhole-n150", 16
WANTED = {"plan": 5e-3, "search": 0.2, "search in slices": 0.2, "network": 3.0}  # seconds
# too large for the cores in any layout, so that the search goes through global memory
LARGE = Convolution(
    batch=4, height=512, width=512, in_channels=64, out_channels=64, kernel=(3, 3), padding=((1, 1), (1, 1))
)


def run(say: Callable[[str], None]) -> dict[str, Any]:
    machine = load_machine(MACHINE)
    worst: dict[str, tuple[float, str]] = {}
    for row in table("resnet50", BATCH):
        say(f"planning, {row.name}")
        for what, call in _calls(row.conv, machine).items():
            seconds = _median(call, Sampling(budget=1.0, target=0.05))
            worst[what] = max(worst.get(what, (0.0, "")), (seconds, row.name))
    say("planning, a convolution in slices")
    sliced = _calls(LARGE, machine)["search"]
    worst["search in slices"] = _median(sliced, Sampling(budget=5.0, target=0.05)), "64 -> 64 on 512x512"
    say("planning, the network")
    whole = network("resnet50", BATCH)

    def planned() -> None:
        forget()
        plan_network(whole, machine)

    worst["network"] = _median(planned, Sampling(warmup=1, iterations=5)), "resnet50"
    found = {what: {"seconds": seconds, "of": name, "wanted": WANTED[what]} for what, (seconds, name) in worst.items()}
    lines = [f"planning on {MACHINE}, batch {BATCH}, nothing kept from before; the slowest of ResNet-50's convolutions"]
    for what, row in found.items():
        lines.append(
            f"  {what:16} {row['seconds'] * 1e3:8.1f} ms ({row['of']}), at most {row['wanted'] * 1e3:g} wanted"
        )
    return {"times": found, "lines": lines}


def _calls(conv: Convolution, machine: Any) -> dict[str, Callable[[], None]]:
    def plan() -> None:
        forget()
        plan_one(conv, machine, layout=ShardLayout.HEIGHT)

    def search() -> None:
        forget()
        plan_conv2d(conv, machine)

    return {"plan": plan, "search": search}


def forget() -> None:
    """Empty what planning keeps from one call to the next."""
    for kept in (halo_count, haloing_of, reshard):
        kept.cache_clear()


def _median(call: Callable[[], None], how: Sampling) -> float:
    return median_interval(sample(call, how).values).value
