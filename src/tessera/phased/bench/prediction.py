"""What a machine is expected to take for a pass: bytes over its stream, FLOPs over its rate, joined by the schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessera.machine.cost import compute_time, transfer_time
from tessera.machine.machine import Machine
from tessera.phased.choices import HOLD_ALL, compute_together


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A phase of a pass: bytes to load, FLOPs to compute, bytes of weights that computing reads from memory."""

    bytes: float
    flops: float
    read: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Seconds of loading and of computing, all phases together, and of the whole pass."""

    load: float
    compute: float
    time: float


def expected(
    machine: Machine,
    work: Sequence[Work],
    *,
    schedule: str,
    dtype: str,
    link: str | None,
    devices: int = 1,
    threads: int = 1,
    batches: int = 1,
) -> Expected | None:
    """What the machine's rates allow; None where it has no figure for the link or the dtype.

    Without a link nothing is moved: weights that are mapped are computed with where they lie.
    """
    crossed = None if schedule in HOLD_ALL else link
    if dtype not in machine.flops or (crossed is not None and crossed not in machine.links):
        return None
    together = devices if compute_together(schedule, batches) else 1
    computing = [
        compute_time(
            machine,
            one.flops,
            one.read if "global" in machine.links else 0.0,
            dtype,
            workers=together,
            threads=threads,
        )
        for one in work
    ]
    loading = [
        transfer_time(one.bytes, machine.link(crossed)) if crossed is not None and one.bytes else 0.0 for one in work
    ]
    apart = schedule == "sequential"
    time = sum(io + c if apart else max(io, c) for io, c in zip(loading, computing, strict=True))
    return Expected(load=sum(loading), compute=sum(computing), time=time)
