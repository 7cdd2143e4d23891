"""Predicted throughput of ResNet-50 on Grayskull, Wormhole and Blackhole, compared with the published throughput."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tessera.coregrid.cost.durations import get_core_rates
from tessera.coregrid.networks.layers import describe_network
from tessera.coregrid.networks.plan import DEFAULT_COMPUTE_CONFIG, DEFAULT_CONV_CONFIG, PUBLISHED_RATES, plan_network
from tessera.machine import load_machine


def run(say: Callable[[str], None]) -> dict[str, Any]:
    rows = []
    for published in PUBLISHED_RATES:
        say(f"published, {published.machine}")
        machine = load_machine(published.machine)
        search = plan_network(describe_network(published.network, published.batch), machine)
        rows.append(
            {
                "network": published.network,
                "machine": published.machine,
                "batch": published.batch,
                "predicted": search.best.images_per_second,
                "published": published.rate,
                "error": search.best.error,
                "greedy": search.greedy.images_per_second if search.greedy else None,
                "resharding": search.best.resharding / search.best.seconds,
                "assumed": get_core_rates(machine, DEFAULT_COMPUTE_CONFIG, DEFAULT_CONV_CONFIG.dtype).assumed,
            }
        )
    lines = ["images/s predicted from the chips' rates; no factor is fitted to the network"]
    for row in rows:
        assumed = f"; {', '.join(row['assumed'])} taken from another chip" if row["assumed"] else ""
        lines.append(
            f"  {row['network']} on {row['machine']}, batch {row['batch']}: {row['predicted']:,.0f} predicted, "
            f"{row['published']:,.0f} published, {row['error']:+.0%}{assumed}"
        )
    return {"networks": rows, "lines": lines}
