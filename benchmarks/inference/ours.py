"""Tessera's side of the comparison: the best candidate of a tuning, loaded and ready for bursts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from inference.networks import PLACEMENTS, Effort
from inference.peers import BURST_SECONDS
from tessera.inference.cases import get_task
from tessera.inference.replicas.replica_pool import LoadedNetwork, ReplicaPool
from tessera.inference.settings import Settings
from tessera.inference.tune.race import BATCH_SIZES, TuningGoal
from tessera.inference.tune.tuning import TuningResult, find_usable_engines, tune_network


@dataclass(slots=True)
class TunedNetwork:
    """The best candidate of a tuning, running on its replicas."""

    pool: ReplicaPool
    network: LoadedNetwork

    def measure_rate(self) -> float:
        return self.network.run_window(batches=1, seconds=BURST_SECONDS).rate

    def close(self) -> None:
        self.pool.__exit__(None, None, None)


def build_settings(network: str, precision: str = "32.32") -> Settings:
    """Return settings in which the input is in the engine's memory, as it is for the peers."""
    return Settings(model=network, precision=precision, data="synthetic", engine="onnxruntime")


def tune_and_summarise(
    network: str, precision: str, effort: Effort, say: Callable[[str], None]
) -> tuple[TuningResult, dict[str, Any]]:
    """Tune a network as `tessera infer --tune` does; return the result and a summary."""
    settings = build_settings(network, precision)
    result = tune_network(
        settings,
        TuningGoal(),
        engines=find_usable_engines(settings),
        places=PLACEMENTS,
        batches=BATCH_SIZES,
        budget=effort.tune_time,
        say=lambda text: say(f"{network} {precision}: {text}"),
    )
    best = result.best
    return result, {"best": str(best.candidate), "images/s": best.rate, "latency p90": best.latency}


def start_best(result: TuningResult) -> TunedNetwork:
    """Start the best candidate on new replicas."""
    task = get_task(result.cases[result.best.candidate])
    pool = ReplicaPool(task.placement).__enter__()
    return TunedNetwork(pool, pool.load(task.settings))
