"""What moves the boxes of a plan between ranks: memory that can be sent, persistent connections between views of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Strip:
    """A view of this rank's memory: what goes to a peer, or where what comes from it is put."""

    peer: int
    tensor: Tensor


class Connection(Protocol):
    """The same strips move every round: `settle`, write what is sent, `start`, do something else, `finish`."""

    def settle(self) -> None:
        """Return when the peers have taken what the last round sent: only then may it be written over."""

    def start(self) -> None:
        """What is sent is in place: let it go."""

    def finish(self) -> None:
        """Return when everything that this rank receives is in place."""


class Transport(Protocol):
    """One rank's access to the others. Every rank calls everything but the rounds of a connection alike."""

    @property
    def name(self) -> str: ...

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def empty(self, count: int, dtype: torch.dtype) -> Tensor:
        """Memory for so many numbers, one-dimensional, whose views can be sent."""

    def connect(self, sends: Sequence[Strip], receives: Sequence[Strip]) -> Connection:
        """Strips to a peer arrive there in the order in which both name them."""

    def all_reduce(self, values: Tensor) -> None:
        """Every rank gets the sum over the ranks, in place."""

    def barrier(self) -> None:
        """Return when every rank has come here."""

    def close(self) -> None:
        """Give back what the transport holds; its connections end with it."""
