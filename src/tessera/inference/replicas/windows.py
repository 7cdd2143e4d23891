"""Windows: the batches that replicas computed after a common start, and the total rate of the replicas.

Replicas start together, but when the first replica ends, the others run faster. The rate therefore counts only the time
during which every replica computed: from the last start to the first end. A batch that is partly inside this time
counts as a fraction, so that long batches do not round the rate up or down.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTimes:
    """The start and end of each batch of one replica in a window, in nanoseconds of the monotonic clock.

    `cpu_ns` is the CPU time of the process from the first start to the last end. `device_joules` is the energy of the
    replica's accelerator in this time; None if its driver does not report it.
    """

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    cpu_ns: int = 0
    device: str = "cpu"
    device_joules: float | None = None

    @property
    def first(self) -> int:
        """The start of the first batch."""
        return min(self.starts)

    @property
    def last(self) -> int:
        """The end of the last batch."""
        return max(self.ends)

    @property
    def wall_ns(self) -> int:
        """Nanoseconds from the first start to the last end."""
        return self.last - self.first

    def count_batches(self, start: int, end: int) -> float:
        """Count the batches between two times; a batch that is partly outside counts as a fraction.

        >>> BatchTimes(starts=(0, 10), ends=(10, 20)).count_batches(5, 20)
        1.5
        """
        return sum(
            max(0, min(batch_end, end) - max(batch_start, start)) / (batch_end - batch_start)
            for batch_start, batch_end in zip(self.starts, self.ends, strict=True)
            if batch_end > batch_start
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputWindow:
    """The batches of all replicas after a common start; `batch` is the number of images in a batch.

    >>> both = ThroughputWindow(batch=4, replicas=(
    ...     BatchTimes(starts=(0,), ends=(10**9,)), BatchTimes(starts=(0, 10**9), ends=(10**9, 2 * 10**9))))
    >>> both.seconds, both.rates, both.rate
    (1.0, (4.0, 4.0), 8.0)
    """

    batch: int
    replicas: tuple[BatchTimes, ...]

    @property
    def start(self) -> int:
        return max(replica.first for replica in self.replicas)

    @property
    def end(self) -> int:
        return min(replica.last for replica in self.replicas)

    @property
    def seconds(self) -> float:
        """Seconds during which all replicas computed; zero or negative if their batches did not overlap in time."""
        return (self.end - self.start) / 1e9

    @property
    def rates(self) -> tuple[float, ...]:
        """Images per second of each replica, over the time during which all replicas computed."""
        assert self.seconds > 0, "the replicas never computed at the same time"
        return tuple(
            self.batch * replica.count_batches(self.start, self.end) / self.seconds for replica in self.replicas
        )

    @property
    def rate(self) -> float:
        """Images per second of all replicas together."""
        return sum(self.rates)

    @property
    def latencies(self) -> tuple[float, ...]:
        """Latency in seconds of each batch that started while all replicas computed."""
        return tuple(
            (end - start) / 1e9
            for replica in self.replicas
            for start, end in zip(replica.starts, replica.ends, strict=True)
            if start < self.end
        )

    @property
    def device_joules(self) -> float | None:
        """Energy of all accelerators; replicas on one device read the same counter. None if a driver reports none."""
        spent: dict[str, float] = {}
        for replica in self.replicas:
            if replica.device_joules is None:
                return None
            spent[replica.device] = max(replica.device_joules, spent.get(replica.device, 0.0))
        return sum(spent.values())

    @property
    def utilisation(self) -> float:
        """The mean number of busy cores: CPU time over wall time, summed over the replicas."""
        return sum(replica.cpu_ns / replica.wall_ns for replica in self.replicas if replica.wall_ns)
