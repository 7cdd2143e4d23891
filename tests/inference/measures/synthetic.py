"""Synthetic replicas with given batch times and their own clock."""

from __future__ import annotations

from collections.abc import Callable

from tessera.errors import BenchmarkFailed
from tessera.inference.replicas.windows import BatchTimes, ThroughputWindow


class SyntheticReplicas:
    """Replicas whose batches take `seconds(replica, window)` seconds; a replica dies in window `dies_in`."""

    def __init__(
        self, size: int, seconds: Callable[[int, int], float], *, batch: int = 4, dies_in: int | None = None
    ) -> None:
        self.size, self._seconds, self._batch, self._dies_in = size, seconds, batch, dies_in
        self.now = 0.0
        self.requests: list[tuple[int, float, bool]] = []

    def run_window(self, *, batches: int, seconds: float, alone: bool = False) -> ThroughputWindow:
        number = len(self.requests)
        self.requests.append((batches, seconds, alone))
        if number == self._dies_in:
            raise BenchmarkFailed("rank 1 of 2 died of SIGKILL; no output")
        replica_times = []
        for replica in range(1 if alone else self.size):
            each = self._seconds(replica, number)
            count = max(batches, int(seconds / each) + 1) if seconds else batches
            marks = [round((self.now + k * each) * 1e9) for k in range(count + 1)]
            replica_times.append(
                BatchTimes(starts=tuple(marks[:-1]), ends=tuple(marks[1:]), cpu_ns=marks[-1] - marks[0])
            )
        self.now = max(stretch.last for stretch in replica_times) / 1e9
        return ThroughputWindow(batch=self._batch, replicas=tuple(replica_times))

    def clock(self) -> float:
        return self.now
