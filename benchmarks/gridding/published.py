"""ResNet-50 predicted for the chips from their rates, beside what their maker published."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tessera.coregrid.cost.rates import rates_of
from tessera.coregrid.networks.layers import network
from tessera.coregrid.networks.plan import COMPUTE, CONFIG, plan_network
from tessera.coregrid.networks.published import PUBLISHED
from tessera.machine import load_machine

WANTED = 0.30


def run(say: Callable[[str], None]) -> dict[str, Any]:
    found = []
    for row in PUBLISHED:
        say(f"published, {row.machine}")
        machine = load_machine(row.machine)
        searched = plan_network(network(row.network, row.batch), machine)
        found.append(
            {
                "network": row.network,
                "machine": row.machine,
                "batch": row.batch,
                "predicted": searched.best.images_per_second,
                "published": row.compared,
                "error": searched.best.error,
                "greedy": searched.greedy.images_per_second if searched.greedy else None,
                "resharding": searched.best.resharding / searched.best.seconds,
                "assumed": rates_of(machine, COMPUTE, CONFIG.dtype).assumed,
            }
        )
    lines = [f"images/s predicted from the chips' rates, nothing fitted to the network; within {WANTED:.0%} wanted"]
    for one in found:
        assumed = f"; {', '.join(one['assumed'])} taken from another chip" if one["assumed"] else ""
        lines.append(
            f"  {one['network']} on {one['machine']}, batch {one['batch']}: {one['predicted']:,.0f} predicted, "
            f"{one['published']:,.0f} published, {one['error']:+.0%}{assumed}"
        )
    return {"networks": found, "lines": lines}
