"""Two pinned replicas of one thread against one of them alone: windows in turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from inferring.networks import Effort, two_cores
from inferring.ours import settings_of
from inferring.turns import said
from tessera.inference.measures.throughput import sample_windows
from tessera.inference.replicas.crew import Replicas
from tessera.inference.replicas.placement import Placement
from tessera.measure.interleave import paired_ratio
from tessera.measure.samples import Sampling

TARGET = 1.95
ENGINES = ("onnxruntime", "openvino")
BATCH = 4
WINDOW = 2.0  # seconds


def run(networks: Sequence[str], effort: Effort, say: Callable[[str], None]) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {}
    with two_cores():
        for network in networks:
            for engine in ENGINES:
                say(f"replicas: {network}, {engine}")
                found.setdefault(network, {})[engine] = _speed_up(network, engine, effort.rounds)
    return {"networks": found, "target": TARGET, "lines": _lines(found)}


def _speed_up(network: str, engine: str, rounds: int) -> dict[str, Any]:
    settings = replace(settings_of(network), engine=engine, batch_size=BATCH)
    with Replicas(Placement(num_replicas=2)) as replicas:
        on = replicas.load(settings)
        batches = max(1, round(WINDOW / on.loaded[0].batch))
        taken = sample_windows(on, Sampling(iterations=rounds, warmup=2), batches=batches)
    together, alone = (tuple(pair[side].rate for pair in taken.pairs) for side in (0, 1))
    ratio = paired_ratio(together, alone)
    return {"two": together, "one": alone, "ratio": ratio.value, "low": ratio.low, "high": ratio.high}


def _lines(found: dict[str, dict[str, Any]]) -> list[str]:
    lines = [f"two pinned replicas of one thread over one alone (target {TARGET}x), batch {BATCH}"]
    for network, engines in found.items():
        for engine, one in engines.items():
            met = "met" if one["ratio"] >= TARGET else "NOT met"
            lines.append(f"  {network:18} {engine:12} {said(one)}: {met}")
    return lines
