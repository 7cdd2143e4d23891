"""A clock that only advances when a test's callable says so."""

from __future__ import annotations

from collections.abc import Callable

from tessera.measure.clock import Clock, Counters


class SyntheticClock:
    """Time, switches, faults and steal under a test's control; reading it costs `cost` nanoseconds."""

    def __init__(self, cost: int = 0) -> None:
        self.now = 0
        self.busy = 0
        self.switches = 0
        self.faults = 0
        self.stolen = 0.0
        self.cost = cost

    def wall(self) -> int:
        self.now += self.cost
        return self.now

    def clock(self) -> Clock:
        return Clock(
            wall=self.wall,
            cpu=lambda: self.busy,
            counters=lambda: Counters(self.switches, self.faults),
            steal=lambda: self.stolen,
        )

    def call(self, duration: Callable[[], float]) -> Callable[[], None]:
        """A callable that takes `duration()` nanoseconds of wall and CPU time."""

        def fn() -> None:
            took = round(duration())
            self.now += took
            self.busy += took

        return fn
