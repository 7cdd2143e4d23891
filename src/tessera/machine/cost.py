"""The cost model: predicted times of computations and transfers on a machine.

A computation takes the longer of its arithmetic and its memory traffic (roofline model). A message takes the latency of
the link plus its bytes divided by the bandwidth.
"""

from __future__ import annotations

import math
from typing import Any

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
    """Return the seconds for `flops` FLOPs and `bytes` bytes, divided evenly among the workers.

    `memory` is the link that the bytes use: `global`, or `local` for data in the workers' own memory. On a host a
    worker is a core, so the number of active cores is `workers` (processes) times `threads`.

    >>> from tessera.machine import load_machine
    >>> n150 = load_machine("wormhole-n150")
    >>> f"{compute_time(n150, 8.18e9, 51e6, 'bfloat16', workers=64) * 1e6:.0f} microseconds"
    '177 microseconds'
    """
    _check_not_negative("FLOPs", flops)
    _check_not_negative("bytes", bytes)
    active = workers * threads
    arithmetic = flops / machine.get_rate(dtype, workers=active, fidelity=fidelity)
    # Not every machine file gives the memory bandwidth, which work without memory traffic does not need.
    traffic = bytes / machine.get_bandwidth(memory, workers=active) if bytes else 0.0
    return max(arithmetic, traffic)


def transfer_time(bytes: float, link: Link, *, messages: int = 1) -> float:
    """Return the seconds to move `bytes` bytes in `messages` consecutive messages.

    >>> transfer_time(1e6, Link(bandwidth=(1e9,), latency=2e-6))
    0.001002
    """
    _check_not_negative("bytes", bytes)
    _check_not_negative("messages", messages)
    return messages * link.latency + bytes / link.get_bandwidth(1)


def compute_roofline_fraction(
    machine: Machine, seconds: float, flops: float, bytes: float, dtype: str, **options: Any
) -> float:
    """Return the roofline time over the measured `seconds`: 1 at the roofline, above 1 if data came from a cache.

    The keywords `options` are those of `compute_time`.
    """
    if not seconds > 0 or not math.isfinite(seconds):
        raise TesseraError("the measured time must be positive", got=seconds)
    return compute_time(machine, flops, bytes, dtype, **options) / seconds


def compute_balance(
    machine: Machine, dtype: str, *, workers: int = 1, memory: str = "global", fidelity: str | None = None
) -> float:
    """Return the machine balance: the FLOPs per byte at which arithmetic and memory traffic take equally long.

    >>> from tessera.machine import load_machine
    >>> round(compute_balance(load_machine("ipu-m2000"), "float16", memory="streaming"))
    6510
    """
    rate = machine.get_rate(dtype, workers=workers, fidelity=fidelity)
    return rate / machine.get_bandwidth(memory, workers=workers)


def _check_not_negative(name: str, value: float) -> None:
    if not value >= 0 or not math.isfinite(value):
        raise TesseraError(f"{name} must be finite and not negative", got=value)
