"""The synchronisation of ranks that measure together."""

from __future__ import annotations

from typing import Protocol, TypeVar

T = TypeVar("T")


class Sync(Protocol):
    """The interface by which the sampler synchronises a rank with the other ranks."""

    def barrier(self) -> None:
        """Wait until every rank has called this method."""

    def agree(self, value: T) -> T:
        """Return the `value` that rank 0 passed, on every rank."""


class SingleRank:
    """The synchronisation of a single worker: every method is a no-op."""

    def barrier(self) -> None:
        return None

    def agree(self, value: T) -> T:
        return value


SINGLE_RANK = SingleRank()
