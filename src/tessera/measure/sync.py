"""How the ranks of one measurement keep step."""

from __future__ import annotations

from typing import Protocol, TypeVar

T = TypeVar("T")


class Sync(Protocol):
    """What a sampler needs from the ranks around it."""

    def barrier(self) -> None:
        """Return when every rank has come here."""

    def agree(self, value: T) -> T:
        """Every rank gets rank 0's value."""


class Alone:
    """One worker: always in step with itself."""

    def barrier(self) -> None:
        return None

    def agree(self, value: T) -> T:
        return value


ALONE = Alone()
