"""Two pinned replicas of one thread against one of them alone: short windows in turns, in random order."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from parts import two_cores

from inferring.networks import Effort
from inferring.ours import settings_of
from inferring.turns import said
from tessera.inference.replicas.crew import Replicas
from tessera.inference.replicas.placement import Placement
from tessera.measure.interleave import paired_ratio

TARGET = 1.95
ENGINES = ("onnxruntime", "openvino")
BATCH = 4
WINDOW = 0.5  # seconds, or one batch where that takes longer
WINDOWS = 5  # of each side in a round
LEAD_IN = 2  # rounds that are not counted


def run(networks: Sequence[str], effort: Effort, say: Callable[[str], None]) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {}
    with two_cores():
        for network in networks:
            for engine in ENGINES:
                say(f"replicas: {network}, {engine}")
                found.setdefault(network, {})[engine] = _speed_up(network, engine, WINDOWS * effort.rounds)
    return {"networks": found, "target": TARGET, "lines": _lines(found)}


def _speed_up(network: str, engine: str, pairs: int) -> dict[str, Any]:
    settings = replace(settings_of(network), engine=engine, batch_size=BATCH)
    rates: dict[bool, list[float]] = {False: [], True: []}  # by whether the first replica is alone
    with Replicas(Placement(num_replicas=2)) as replicas:
        on = replicas.load(settings)
        for number in range(LEAD_IN + pairs):
            for alone in random.sample((False, True), 2):
                rate = on.window(batches=1, seconds=WINDOW, alone=alone).rate
                if number >= LEAD_IN:
                    rates[alone].append(rate)
    ratio = paired_ratio(tuple(rates[False]), tuple(rates[True]))
    return {"two": rates[False], "one": rates[True], "ratio": ratio.value, "low": ratio.low, "high": ratio.high}


def _lines(found: dict[str, dict[str, Any]]) -> list[str]:
    lines = [f"two pinned replicas of one thread over one alone (target {TARGET}x), batch {BATCH}"]
    for network, engines in found.items():
        for engine, one in engines.items():
            met = "met" if one["ratio"] >= TARGET else "NOT met"
            lines.append(f"  {network:18} {engine:12} {said(one)}: {met}")
    return lines
