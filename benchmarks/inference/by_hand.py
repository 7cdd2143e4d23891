"""Simulated manual tuning of an engine: first the placement at a medium batch size, then the batch size.

From the medium batch size the search tries larger sizes while the rate grows; if it does not grow, smaller sizes. Every
candidate runs a few short bursts in its own processes; the processes of the best candidate stay alive.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inference.networks import BATCH_SIZES, PLACEMENTS
from inference.peers import Peer, run_benchmark_app, start_peer

FIRST_BATCH_SIZE = 8
BURSTS_PER_CANDIDATE, BURST_SECONDS = 3, 0.7  # bursts per candidate, and seconds per burst
ENGINE_BUDGET_SECONDS = 150.0  # seconds per engine; when they are spent, no further batch size is tried


@dataclass(slots=True)
class HandTuning:
    """The manual tuning of one engine; it ends early if both placements are slower than `least` images/s."""

    kind: str
    network: str
    file: Path
    say: Callable[[str], None]
    least: float = 0.0
    tried: list[dict[str, Any]] = field(default_factory=list)
    best: Peer | None = None
    rate: float = 0.0

    def run(self) -> Peer:
        """Tune the engine; return the best candidate with its processes still running."""
        began = time.monotonic()
        for place in PLACEMENTS:
            self._try(place, FIRST_BATCH_SIZE)
        assert self.best is not None
        place = self.best.place
        larger = [batch for batch in BATCH_SIZES if batch > FIRST_BATCH_SIZE]
        smaller = [batch for batch in reversed(BATCH_SIZES) if batch < FIRST_BATCH_SIZE]
        for walk in (larger, smaller):
            for batch in walk:
                if (
                    self.rate < self.least
                    or time.monotonic() - began > ENGINE_BUDGET_SECONDS
                    or not self._try(place, batch)
                ):
                    break
            if self.best.batch != FIRST_BATCH_SIZE:
                break
        return self.best

    def _try(self, place: tuple[int, int], batch: int) -> bool:
        """Run a candidate and return whether it is the best so far; stop the processes of the slower candidate."""
        self.say(f"{self.network}: {self.kind}, {place[0]} x {place[1]}, batch {batch}")
        peer = start_peer(self.kind, self.network, self.file, place, batch)
        rate = statistics.median(peer.measure_rate(BURST_SECONDS) for _ in range(BURSTS_PER_CANDIDATE))
        self.tried.append({"processes": place[0], "threads": place[1], "batch": batch, "images/s": rate})
        worse: Peer | None = peer
        if gained := rate > self.rate:
            worse, self.best, self.rate = self.best, peer, rate
        if worse is not None:
            worse.close()
        return gained


def find_best_app_batch(
    network: str, file: Path, say: Callable[[str], None]
) -> tuple[int, float, list[dict[str, Any]]]:
    """Return the batch size at which benchmark_app is fastest, its images/s, and all sizes tried."""
    tried: list[dict[str, Any]] = []
    best, most = 0, 0.0
    for batch in BATCH_SIZES:
        say(f"{network}: benchmark_app, batch {batch}")
        rate = run_benchmark_app(network, file, batch)
        tried.append({"batch": batch, "images/s": rate})
        if rate > most:
            best, most = batch, rate
        elif batch > 2 * best:  # two consecutive batch sizes without a gain
            break
    return best, most, tried
