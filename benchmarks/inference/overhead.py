"""Overhead of Tessera's timed loop: windows and plain calls of one engine session, interleaved, at batch size 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from parts import limit_to_two_cores

from inference.interleaved import format_ratio
from inference.networks import Effort
from tessera.inference.engines import ENGINES
from tessera.inference.opening import open_feed, open_session
from tessera.inference.replicas.replica_worker import run_sequential
from tessera.inference.settings import Settings
from tessera.launch import LaunchConfig, Worker, Workers
from tessera.measure.interleave import sample_interleaved

MAX_RATIO = 1.01
SECONDS_PER_ENGINE = 40.0  # per network and engine


def run(networks: Sequence[str], effort: Effort, say: Callable[[str], None]) -> dict[str, Any]:
    results: dict[str, dict[str, Any]] = {}
    with limit_to_two_cores(), Workers(LaunchConfig(time_limit=900.0)) as workers:
        for network in networks:
            for engine, entry in ENGINES.items():
                if not entry.explain_missing() and not entry.slow_start:
                    say(f"overhead: {network}, {engine}")
                    (results.setdefault(network, {})[engine],) = workers.run(
                        "inference.overhead:compare_with_plain_calls", network, engine
                    )
    return {"networks": results, "target": MAX_RATIO, "lines": _format_lines(results)}


def compare_with_plain_calls(worker: Worker, network: str, engine: str) -> dict[str, float]:
    """Return the ratio of the time of a window to the time of a plain engine call; runs in a worker."""
    settings = Settings(model=network, engine=engine, data="synthetic")
    with open_session(settings, threads=1) as opened:
        feed = open_feed(settings, opened)
        batch, call = feed.next_batch(), opened.session.run

        # Windows of one batch, so that every sample includes the overhead of a window.
        sides = {"ours": lambda: run_sequential(opened.session, feed, 1, 0.0), "directly": lambda: call(batch)}
        ratio = sample_interleaved(sides, budget=SECONDS_PER_ENGINE, target=0.0005).ratio("ours", "directly")
        feed.close()
    return {"ratio": ratio.value, "low": ratio.low, "high": ratio.high}


def _format_lines(results: dict[str, dict[str, Any]]) -> list[str]:
    lines = [f"timed loop over plain calls of the engine, batch 1, one thread (target under {MAX_RATIO}x)"]
    for network, engines in results.items():
        for engine, ratio in engines.items():
            met = "met" if ratio["ratio"] < MAX_RATIO else "NOT met"
            lines.append(f"  {network:18} {engine:20} {format_ratio(ratio)}: {met}")
    return lines
