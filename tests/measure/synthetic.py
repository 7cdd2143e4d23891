"""A synthetic clock that advances only when a test advances it."""

from __future__ import annotations

from collections.abc import Callable

from tessera.measure.clock import Clock, KernelCounters


class SyntheticClock:
    """A clock with time, context switches, page faults and steal time set by a test; one reading takes `cost` ns."""

    def __init__(self, cost: int = 0) -> None:
        self.now = 0
        self.busy = 0
        self.switches = 0
        self.faults = 0
        self.stolen = 0.0
        self.cost = cost

    def read_wall(self) -> int:
        self.now += self.cost
        return self.now

    def make_clock(self) -> Clock:
        return Clock(
            wall=self.read_wall,
            cpu=lambda: self.busy,
            counters=lambda: KernelCounters(self.switches, self.faults),
            steal=lambda: self.stolen,
        )

    def make_call(self, duration: Callable[[], float]) -> Callable[[], None]:
        """Return a callable that takes `duration()` nanoseconds of wall and CPU time."""

        def fn() -> None:
            took = round(duration())
            self.now += took
            self.busy += took

        return fn
