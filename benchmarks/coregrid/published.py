"""Predicted times of convolutions and networks on Grayskull, Wormhole and Blackhole, compared with published times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tessera.coregrid.cost.durations import get_core_rates
from tessera.coregrid.networks.layers import describe_network
from tessera.coregrid.networks.plan import DEFAULT_COMPUTE_CONFIG, DEFAULT_CONV_CONFIG, plan_network
from tessera.coregrid.published import PUBLISHED_RATES, PUBLISHED_TIMES, predict_published_time
from tessera.machine import load_machine


def run(say: Callable[[str], None]) -> dict[str, Any]:
    times = []
    for row in PUBLISHED_TIMES:
        seconds = predict_published_time(row)
        times.append(
            {
                "name": row.name,
                "machine": row.machine,
                "predicted": seconds,
                "published": row.seconds,
                "error": seconds / row.seconds - 1,
                "source": row.source,
                "why": row.why,
            }
        )
    rates = []
    for published in PUBLISHED_RATES:
        say(f"published, {published.network} on {published.machine}")
        machine = load_machine(published.machine)
        config = replace(DEFAULT_CONV_CONFIG, dtype=published.dtype, weights_dtype=published.dtype)
        search = plan_network(describe_network(published.network, published.batch, published.image), machine, config)
        rates.append(
            {
                "network": published.network,
                "machine": published.machine,
                "batch": published.batch,
                "predicted": search.best.kernel_images_per_second,
                "published": published.rate,
                "error": search.best.error,
                "with_launches": search.best.images_per_second,
                "moving": search.best.moving / search.best.seconds,
                "assumed": get_core_rates(machine, DEFAULT_COMPUTE_CONFIG, DEFAULT_CONV_CONFIG.dtype).assumed,
                "source": published.source,
                "why": published.why,
            }
        )
    lines = ["kernel times and images/s predicted from the makers' measured rates; no factor is fitted to them"]
    for row in times:
        lines.append(
            f"  {row['name']} on {row['machine']}: {row['predicted'] * 1e6:.0f} us predicted, "
            f"{row['published'] * 1e6:.0f} us published, {row['error']:+.0%}"
        )
    for row in rates:
        assumed = f"; {', '.join(row['assumed'])} taken from another chip" if row["assumed"] else ""
        lines.append(
            f"  {row['network']} on {row['machine']}, batch {row['batch']}: {row['predicted']:,.0f} predicted, "
            f"{row['published']:,.0f} published, {row['error']:+.0%}{assumed}"
        )
    return {"convolutions": times, "networks": rates, "lines": lines}
