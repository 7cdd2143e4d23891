"""What making a network ready took, and what came out of it, as a replica tells the process that measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A network that is ready on one replica; times in seconds.

    `first_batch` is from the beginning to the first answer, `steps` says where that time went, `batch` is a warm batch.
    `agreement` holds how far the engine agrees with torch, on the replica that was asked to check.
    """

    first_batch: float
    steps: Mapping[str, float]
    batch: float
    compute_dtype: str
    notes: tuple[str, ...] = ()
    agreement: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Aftermath:
    """What a replica knows when all is over: bytes resident at most, what is to be told, what it saw of the machine.

    The first replica also counts the arithmetic of an image, where the network is a torch module.
    """

    peak: int
    notes: tuple[str, ...]
    environment: Mapping[str, Any]
    flops_per_image: float | None = None
