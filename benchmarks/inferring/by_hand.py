"""An engine tuned as its user does by hand: the better placement at a middling batch, then other batches there.

Placements are compared at one batch; from there it goes to larger batches for as long as that pays, and where it does
not at once, to smaller ones. Every candidate gets a few short bursts in processes of its own; the best one stays alive.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inferring.networks import BATCHES, PLACES
from inferring.peers import Peer, benchmark_app, start

MIDDLING = 8
BURSTS, BURST = 3, 0.7  # of a candidate: how many, and their seconds
ENOUGH = 150.0  # seconds for an engine: after that no further batch is tried


@dataclass(slots=True)
class ByHand:
    """The tuning of one engine; one that stays below `least` images/s in both placements is not taken any further."""

    kind: str
    network: str
    file: Path
    say: Callable[[str], None]
    least: float = 0.0
    tried: list[dict[str, Any]] = field(default_factory=list)
    best: Peer | None = None
    rate: float = 0.0

    def run(self) -> Peer:
        """The best that was found, alive."""
        began = time.monotonic()
        for place in PLACES:
            self._try(place, MIDDLING)
        assert self.best is not None
        place = self.best.place
        larger = [batch for batch in BATCHES if batch > MIDDLING]
        smaller = [batch for batch in reversed(BATCHES) if batch < MIDDLING]
        for walk in (larger, smaller):
            for batch in walk:
                if self.rate < self.least or time.monotonic() - began > ENOUGH or not self._try(place, batch):
                    break
            if self.best.batch != MIDDLING:
                break
        return self.best

    def _try(self, place: tuple[int, int], batch: int) -> bool:
        """Whether a candidate is the best so far, which then stays alive."""
        self.say(f"{self.network}: {self.kind}, {place[0]} x {place[1]}, batch {batch}")
        peer = start(self.kind, self.network, self.file, place, batch)
        rate = statistics.median(peer.rate(BURST) for _ in range(BURSTS))
        self.tried.append({"processes": place[0], "threads": place[1], "batch": batch, "images/s": rate})
        worse: Peer | None = peer
        if gained := rate > self.rate:
            worse, self.best, self.rate = self.best, peer, rate
        if worse is not None:
            worse.close()
        return gained


def best_app_batch(network: str, file: Path, say: Callable[[str], None]) -> tuple[int, float, list[dict[str, Any]]]:
    """The batch at which benchmark_app is fastest, its images/s, and what was tried: larger ones while that pays."""
    tried: list[dict[str, Any]] = []
    best, most = 0, 0.0
    for batch in BATCHES:
        say(f"{network}: benchmark_app, batch {batch}")
        rate = benchmark_app(network, file, batch)
        tried.append({"batch": batch, "images/s": rate})
        if rate > most:
            best, most = batch, rate
        elif batch > 2 * best:  # two in a row that were no better
            break
    return best, most, tried
