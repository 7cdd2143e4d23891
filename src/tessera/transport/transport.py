"""The transport protocol: memory that can be sent, and persistent connections between views of this memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Strip:
    """A view of this rank's memory that is sent to a peer, or filled by a peer."""

    peer: int
    tensor: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportTraits:
    """Properties of a transport that a cost model requires.

    `messages` is the library that carries the messages (mpi, gloo, nccl). With `copies_from_peer`, borders are copied
    directly from the peer's memory, and messages only signal. With `shares_memory`, peers map the memory of `empty`, so
    that it can be freed only when all ranks no longer use it. `device_type` is the kind of device of the memory.
    """

    messages: str
    copies_from_peer: bool = False
    shares_memory: bool = False
    device_type: str = "cpu"


class Connection(Protocol):
    """A repeated exchange of fixed strips.

    The calls of a round: `wait_until_sent`, write the sent strips, `start`, compute, `finish`.
    """

    def wait_until_sent(self) -> None:
        """Wait until the peers have read the strips of the last round, so that the strips can be overwritten."""

    def start(self) -> None:
        """Start sending. The sent strips must have been written before."""

    def finish(self) -> None:
        """Wait until all received strips are complete."""

    def close(self) -> None:
        """Release the resources of the connection. All ranks must have finished all rounds: call `barrier` before."""


class Transport(Protocol):
    """Communication of one rank with the other ranks.

    All ranks must make the same calls in the same order; only rounds of a connection are independent.
    """

    @property
    def name(self) -> str: ...

    @property
    def traits(self) -> TransportTraits: ...

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def empty(self, count: int, dtype: torch.dtype) -> Tensor:
        """Allocate a one-dimensional tensor whose views can be sent."""

    def free(self, memory: Tensor) -> None:
        """Release memory from `empty`, after its connections were closed on all ranks."""

    def connect(self, sends: Sequence[Strip], receives: Sequence[Strip]) -> Connection:
        """Connect this rank's strips with the strips of its peers; strips between two ranks are paired in order."""

    def all_reduce(self, values: Tensor) -> None:
        """All-reduce: replace each value by its sum over all ranks, in place."""

    def barrier(self) -> None:
        """Wait until every rank has reached the barrier."""

    def close(self) -> None:
        """Release all resources of the transport, including its connections."""
