"""Replicas that take as long as a test says, on a clock of their own."""

from __future__ import annotations

from collections.abc import Callable

from tessera.errors import BenchmarkFailed
from tessera.inference.measures.windows import Stretch, Window


class Invented:
    """A crew whose batches take what `seconds(replica, number of the window)` gives; it may die in a window."""

    def __init__(
        self, size: int, seconds: Callable[[int, int], float], *, batch: int = 4, dies_in: int | None = None
    ) -> None:
        self.size, self._seconds, self._batch, self._dies_in = size, seconds, batch, dies_in
        self.now = 0.0
        self.asked: list[tuple[int, float, bool]] = []

    def window(self, *, batches: int, seconds: float, alone: bool = False) -> Window:
        number = len(self.asked)
        self.asked.append((batches, seconds, alone))
        if number == self._dies_in:
            raise BenchmarkFailed("rank 1 of 2 died of SIGKILL; it left no last words")
        found = []
        for replica in range(1 if alone else self.size):
            each = self._seconds(replica, number)
            count = max(batches, int(seconds / each) + 1) if seconds else batches
            marks = [round((self.now + k * each) * 1e9) for k in range(count + 1)]
            found.append(Stretch(begun=tuple(marks[:-1]), ended=tuple(marks[1:]), cpu=marks[-1] - marks[0]))
        self.now = max(stretch.last for stretch in found) / 1e9
        return Window(batch=self._batch, stretches=tuple(found))

    def clock(self) -> float:
        return self.now
