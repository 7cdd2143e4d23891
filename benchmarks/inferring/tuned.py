"""`tessera infer --tune` at float32 against every peer tuned by hand: one run, bursts in turns, ratios with spread."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from inferring.networks import Effort, onnx_file, two_cores
from inferring.ours import alive, tuned
from inferring.peers import KINDS, benchmark_app, best_app_batch, hand_tuned
from inferring.turns import in_turns, medians, ratios, said

OURS, APP = "tessera --tune", "benchmark_app"
TARGET, TARGET_EAGER = 1.0, 1.3
PEAK = "torch eager"


def run(networks: Sequence[str], effort: Effort, say: Callable[[str], None]) -> dict[str, Any]:
    found = {}
    with two_cores(), tempfile.TemporaryDirectory(prefix="tessera-bench-") as folder:
        for network in networks:
            found[network] = _network(network, onnx_file(network, Path(folder)), effort, say)
    return {"networks": found, "targets": {"best peer": TARGET, "torch eager": TARGET_EAGER}, "lines": _lines(found)}


def _network(network: str, file: Path, effort: Effort, say: Callable[[str], None]) -> dict[str, Any]:
    chosen, about = tuned(network, "32.32", effort, say)
    peers, tried = {}, {}
    for kind in KINDS:
        peers[kind], tried[kind] = hand_tuned(kind, network, file, say)
    batch, tried[APP] = best_app_batch(network, file, say)
    ours = alive(chosen)
    try:
        sides: dict[str, Callable[[], float]] = {OURS: ours.rate, APP: partial(benchmark_app, network, file, batch)}
        sides |= {kind: peer.rate for kind, peer in peers.items()}
        rates = in_turns(sides, effort.rounds, lambda text: say(f"{network}: {text}"))
    finally:
        ours.close()
        for peer in peers.values():
            peer.close()
    middle = medians(rates)
    best = max((name for name in rates if name != OURS), key=lambda name: middle[name])
    against = ratios(rates, OURS)
    return {
        "ours": about,
        "tried by hand": tried,
        "rates": rates,
        "median": middle,
        "best peer": best,
        "ratios": against,
        "met": against[best]["ratio"] >= TARGET and against[PEAK]["ratio"] >= TARGET_EAGER,
    }


def _lines(found: dict[str, Any]) -> list[str]:
    lines = [f"images/s at float32, and ours over each peer (targets {TARGET}x of the best, {TARGET_EAGER}x of eager)"]
    for network, one in found.items():
        lines.append(f"  {network}: {one['median'][OURS]:.1f} with {one['ours']['best']}")
        for name, ratio in one["ratios"].items():
            best = " (best peer)" if name == one["best peer"] else ""
            lines.append(f"    {name:14} {one['median'][name]:7.1f}   {said(ratio)}{best}")
        lines.append(f"    {'met' if one['met'] else 'NOT met'}")
    return lines
