"""Our loop against calling the engine: the same session and batch in one process, turn by turn, at batch 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from parts import two_cores

from inferring.networks import Effort
from inferring.turns import said
from tessera.inference.data import open_feed
from tessera.inference.engines import ENGINES, available
from tessera.inference.opening import open_session
from tessera.inference.replicas.inside import one_by_one
from tessera.inference.settings import Settings
from tessera.launch import LaunchConfig, Worker, Workers
from tessera.measure.interleave import sample_interleaved

TARGET = 1.01
SECONDS = 40.0  # for one network in one engine


def run(networks: Sequence[str], effort: Effort, say: Callable[[str], None]) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {}
    with two_cores(), Workers(LaunchConfig(time_limit=900.0)) as workers:
        for network in networks:
            for engine in ENGINES:
                if available(engine) is None and engine != "torch-compile":
                    say(f"overhead: {network}, {engine}")
                    (found.setdefault(network, {})[engine],) = workers.run(
                        "inferring.overhead:compare", network, engine
                    )
    return {"networks": found, "target": TARGET, "lines": _lines(found)}


def compare(worker: Worker, network: str, engine: str) -> dict[str, float]:
    """In a worker: how many times longer a window of ours takes than as many plain calls."""
    settings = Settings(model=network, engine=engine, data="synthetic")
    with open_session(settings, threads=1) as opened:
        feed = open_feed(settings, opened)
        held, call = feed.next(), opened.session.run

        # a window of one batch each: whatever a window costs is then in every sample of ours
        sides = {"ours": lambda: one_by_one(opened.session, feed, 1, 0.0), "directly": lambda: call(held)}
        ratio = sample_interleaved(sides, budget=SECONDS, target=0.0005).ratio("ours", "directly")
        feed.close()
    return {"ratio": ratio.value, "low": ratio.low, "high": ratio.high}


def _lines(found: dict[str, dict[str, Any]]) -> list[str]:
    lines = [f"our loop over plain calls of the engine, batch 1, one thread (target under {TARGET}x)"]
    for network, engines in found.items():
        for engine, one in engines.items():
            met = "met" if one["ratio"] < TARGET else "NOT met"
            lines.append(f"  {network:18} {engine:20} {said(one)}: {met}")
    return lines
