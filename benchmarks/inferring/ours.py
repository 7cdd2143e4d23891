"""Our side: what a tuning finds, alive and ready for bursts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from inferring.networks import PLACES, Effort
from inferring.peers import BURST
from tessera.inference.cases import task_of
from tessera.inference.replicas.crew import OnReplicas, Replicas
from tessera.inference.settings import Settings
from tessera.inference.tune.candidates import BATCHES
from tessera.inference.tune.goal import Goal
from tessera.inference.tune.tuning import Tuned, tune, usable_engines


@dataclass(slots=True)
class Ours:
    """The winner of a tuning on its replicas."""

    replicas: Replicas
    on: OnReplicas

    def rate(self) -> float:
        return self.on.window(batches=1, seconds=BURST).rate

    def close(self) -> None:
        self.replicas.__exit__(None, None, None)


def settings_of(network: str, precision: str = "32.32") -> Settings:
    """Input lies in the engine's memory, as it does for the peers."""
    return Settings(model=network, precision=precision, data="synthetic", engine="onnxruntime")


def tuned(network: str, precision: str, effort: Effort, say: Callable[[str], None]) -> tuple[Tuned, dict[str, Any]]:
    """What `tessera infer --tune` finds, and how it stands."""
    settings = settings_of(network, precision)
    found = tune(
        settings,
        Goal(),
        engines=usable_engines(settings),
        places=PLACES,
        batches=BATCHES,
        budget=effort.tune_time,
        say=lambda text: say(f"{network} {precision}: {text}"),
    )
    best = found.best
    return found, {"best": str(best.candidate), "images/s": best.rate, "latency p90": best.latency}


def alive(found: Tuned) -> Ours:
    """The winner, started anew."""
    task = task_of(found.cases[found.best.candidate])
    replicas = Replicas(task.placement).__enter__()
    return Ours(replicas, replicas.load(task.settings))
