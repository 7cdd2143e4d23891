"""Scaling efficiency: two pinned one-thread replicas compared with one replica alone, in interleaved short windows."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from parts import limit_to_two_cores

from inference.interleaved import format_ratio
from inference.networks import Effort
from inference.ours import build_settings
from tessera.inference.replicas.placement import Placement
from tessera.inference.replicas.replica_pool import ReplicaPool
from tessera.measure.interleave import estimate_paired_ratio

TARGET_SPEEDUP = 1.95
ENGINES = ("onnxruntime", "openvino")
BATCH_SIZE = 4
WINDOW_SECONDS = 0.5  # seconds of a window, or one batch if a batch takes longer
WINDOWS_PER_ROUND = 5  # windows per side and round
WARMUP_ROUNDS = 2


def run(networks: Sequence[str], effort: Effort, say: Callable[[str], None]) -> dict[str, Any]:
    results: dict[str, dict[str, Any]] = {}
    with limit_to_two_cores():
        for network in networks:
            for engine in ENGINES:
                say(f"replicas: {network}, {engine}")
                results.setdefault(network, {})[engine] = _measure_speed_up(
                    network, engine, WINDOWS_PER_ROUND * effort.rounds
                )
    return {"networks": results, "target": TARGET_SPEEDUP, "lines": _format_lines(results)}


def _measure_speed_up(network: str, engine: str, pairs: int) -> dict[str, Any]:
    settings = replace(build_settings(network), engine=engine, batch_size=BATCH_SIZE)
    rates: dict[bool, list[float]] = {False: [], True: []}  # key: whether the first replica runs alone
    with ReplicaPool(Placement(num_replicas=2)) as pool:
        loaded = pool.load(settings)
        for number in range(WARMUP_ROUNDS + pairs):
            for alone in random.sample((False, True), 2):
                rate = loaded.run_window(batches=1, seconds=WINDOW_SECONDS, alone=alone).rate
                if number >= WARMUP_ROUNDS:
                    rates[alone].append(rate)
    ratio = estimate_paired_ratio(tuple(rates[False]), tuple(rates[True]))
    return {"two": rates[False], "one": rates[True], "ratio": ratio.value, "low": ratio.low, "high": ratio.high}


def _format_lines(results: dict[str, dict[str, Any]]) -> list[str]:
    lines = [f"two pinned replicas of one thread over one alone (target {TARGET_SPEEDUP}x), batch {BATCH_SIZE}"]
    for network, engines in results.items():
        for engine, result in engines.items():
            met = "met" if result["ratio"] >= TARGET_SPEEDUP else "NOT met"
            lines.append(f"  {network:18} {engine:12} {format_ratio(result)}: {met}")
    return lines
