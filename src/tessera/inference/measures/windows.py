"""What replicas did side by side: the window that all of them share, and the images of that window alone.

Replicas start at a barrier, but the first to end leaves the others with the machine to themselves. So a rate counts
only the time during which every replica was at work: from the last one's beginning to the first one's end. A batch
that lies partly within is counted by its share, which keeps long batches from rounding the rate up or down.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What one replica did after a barrier: when each batch began and ended, in nanoseconds of the machine's clock.

    `cpu` is the CPU time of its process from the first beginning to the last end, in nanoseconds.
    """

    begun: tuple[int, ...]
    ended: tuple[int, ...]
    cpu: int = 0

    @property
    def first(self) -> int:
        """When the first batch began."""
        return min(self.begun)

    @property
    def last(self) -> int:
        """When the last batch ended."""
        return max(self.ended)

    @property
    def wall(self) -> int:
        """Nanoseconds from the first beginning to the last end."""
        return self.last - self.first

    def batches_within(self, start: int, end: int) -> float:
        """Batches between two moments; one that reaches beyond them counts by its share.

        >>> Stretch(begun=(0, 10), ended=(10, 20)).batches_within(5, 20)
        1.5
        """
        return sum(
            max(0, min(ended, end) - max(begun, start)) / (ended - begun)
            for begun, ended in zip(self.begun, self.ended, strict=True)
            if ended > begun
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The stretches of all replicas after one barrier, with `batch` images in a batch.

    >>> both = Window(batch=4, stretches=(
    ...     Stretch(begun=(0,), ended=(10**9,)), Stretch(begun=(0, 10**9), ended=(10**9, 2 * 10**9))))
    >>> both.seconds, both.rates, both.rate
    (1.0, (4.0, 4.0), 8.0)
    """

    batch: int
    stretches: tuple[Stretch, ...]

    @property
    def start(self) -> int:
        return max(stretch.first for stretch in self.stretches)

    @property
    def end(self) -> int:
        return min(stretch.last for stretch in self.stretches)

    @property
    def seconds(self) -> float:
        """How long all replicas were at work together; not positive if one was over before another began."""
        return (self.end - self.start) / 1e9

    @property
    def rates(self) -> tuple[float, ...]:
        """Images per second of each replica, within the common window."""
        assert self.seconds > 0, "these replicas never worked at the same time"
        return tuple(
            self.batch * stretch.batches_within(self.start, self.end) / self.seconds for stretch in self.stretches
        )

    @property
    def rate(self) -> float:
        """Images per second of all replicas together."""
        return sum(self.rates)

    @property
    def latencies(self) -> tuple[float, ...]:
        """Seconds of each batch that began while all replicas were at work."""
        return tuple(
            (ended - begun) / 1e9
            for stretch in self.stretches
            for begun, ended in zip(stretch.begun, stretch.ended, strict=True)
            if begun < self.end
        )

    @property
    def utilisation(self) -> float:
        """CPU time over wall time, summed over the replicas: how many cores were busy."""
        return sum(stretch.cpu / stretch.wall for stretch in self.stretches if stretch.wall)
