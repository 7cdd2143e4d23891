"""What is to be best: images per second, or the latency of a batch; and a bound on the latency."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.errors import TesseraError

GOALS = ("throughput", "latency")
BEYOND = 1e-9  # what nearness to the bound counts for: less than the score of anything that keeps to it


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A score to compare candidates by, higher is better; one within `max_latency` (seconds) beats all that are not.

    Of those that are not the nearest to it is best. The latency is that within which nine of ten batches are done: few
    bursts know a higher quantile.

    >>> goal = Goal(kind="throughput", max_latency=0.05)
    >>> goal.score(100.0, 0.04)
    100.0
    >>> goal.score(900.0, 0.2) < goal.score(100.0, 0.08) < goal.score(0.1, 0.05)
    True
    """

    kind: str = "throughput"
    max_latency: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in GOALS:
            raise TesseraError("--goal", got=self.kind, allowed=GOALS)
        if self.max_latency is not None and self.max_latency <= 0:
            raise TesseraError("--max-latency", got=self.max_latency, allowed="above 0")

    def allows(self, latency: float) -> bool:
        """Whether a latency is within the bound, where there is one."""
        return self.max_latency is None or latency <= self.max_latency

    def score(self, rate: float, latency: float) -> float:
        if self.max_latency is not None and latency > self.max_latency:
            return BEYOND * self.max_latency / latency
        return rate if self.kind == "throughput" else 1 / latency

    def walks(self, batches: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """The batch sizes as ways to go: each from a likely size outwards, until it no longer pays.

        >>> Goal().walks((1, 2, 4, 8, 16)), Goal(kind="latency").walks((4, 1, 2))
        (((4, 8, 16), (2, 1)), ((1, 2, 4),))
        """
        known = tuple(sorted(set(batches)))
        if self.kind == "latency" or self.max_latency is not None:
            return (known,)
        middle = len(known) // 2
        return tuple(walk for walk in (known[middle:], known[:middle][::-1]) if walk)
