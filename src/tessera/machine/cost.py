"""The cost model: how long work and transfers take on a machine if nothing but its rates stands in the way.

A prediction is a lower bound made of two ideas. *Roofline*: work takes as long as its arithmetic or its
memory traffic, whichever is longer. *Transfer*: a message takes a latency, then its bytes at a bandwidth.
"""

from __future__ import annotations

import math

from tessera.errors import TesseraError
from tessera.machine.machine import Link, Machine


def compute_time(
    machine: Machine,
    flops: float,
    bytes: float,
    dtype: str,
    *,
    workers: int = 1,
    threads: int = 1,
    memory: str = "global",
    fidelity: str | None = None,
) -> float:
    """Seconds for work of `flops` FLOPs that moves `bytes` bytes, spread evenly over the workers.

    `memory` is the link its bytes cross: `global`, or `local` for work that stays in the workers' own memory.
    On a host a worker is a core, so processes (`workers`) times their `threads` is what is at work.

    >>> from tessera.machine import load_machine
    >>> n150 = load_machine("wormhole-n150")
    >>> f"{compute_time(n150, 8.18e9, 51e6, 'bfloat16', workers=64) * 1e6:.0f} microseconds"
    '177 microseconds'
    """
    _not_negative("FLOPs", flops)
    _not_negative("bytes", bytes)
    active = workers * threads
    arithmetic = flops / machine.rate(dtype, workers=active, fidelity=fidelity)
    # Work without traffic needs no figure for the memory, which not every described machine has.
    traffic = bytes / machine.bandwidth(memory, workers=active) if bytes else 0.0
    return max(arithmetic, traffic)


def transfer_time(bytes: float, link: Link, *, messages: int = 1) -> float:
    """Seconds to move `bytes` bytes in one message, or in several one after the other.

    >>> transfer_time(1e6, Link(bandwidth=(1e9,), latency=2e-6))
    0.001002
    """
    _not_negative("bytes", bytes)
    _not_negative("messages", messages)
    return messages * link.latency + bytes / link.at(1)


def roofline_fraction(
    machine: Machine,
    seconds: float,
    flops: float,
    bytes: float,
    dtype: str,
    *,
    workers: int = 1,
    threads: int = 1,
    memory: str = "global",
    fidelity: str | None = None,
) -> float:
    """How much of the machine a measured time used: 1 is the roofline; above it, bytes came from a cache."""
    if not seconds > 0 or not math.isfinite(seconds):
        raise TesseraError("a measured time is positive", got=seconds)
    best = compute_time(
        machine, flops, bytes, dtype, workers=workers, threads=threads, memory=memory, fidelity=fidelity
    )
    return best / seconds


def balance(
    machine: Machine, dtype: str, *, workers: int = 1, memory: str = "global", fidelity: str | None = None
) -> float:
    """FLOPs per byte at which arithmetic and memory traffic take equally long; below it, memory decides.

    >>> from tessera.machine import load_machine
    >>> round(balance(load_machine("ipu-m2000"), "float16", memory="streaming"))
    6510
    """
    rate = machine.rate(dtype, workers=workers, fidelity=fidelity)
    return rate / machine.bandwidth(memory, workers=workers)


def _not_negative(what: str, value: float) -> None:
    if not value >= 0 or not math.isfinite(value):
        raise TesseraError(f"{what} cannot be negative", got=value)
