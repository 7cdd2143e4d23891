"""What a machine is expected to take for a pass: bytes over its stream, FLOPs over its rate, joined by the schedule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessera.machine.cost import compute_time, transfer_time
from tessera.machine.machine import Machine
from tessera.phased.choices import HOLD_ALL

# What weights cross on their way into working memory, by where they are; those that are mapped cross nothing.
LINKS = {("disk", True): "streaming", ("disk", False): "streaming_warm", ("host", False): "copy"}


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
    link: str,
    devices: int = 1,
    threads: int = 1,
) -> Expected | None:
    """What the machine's rates allow; None where it has no figure for the link or the dtype."""
    streams = schedule not in HOLD_ALL
    if dtype not in machine.flops or (streams and link not in machine.links):
        return None
    together = devices if schedule == "data-parallel" else 1  # otherwise one device computes at a time
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
    loading = [transfer_time(one.bytes, machine.link(link)) if streams and one.bytes else 0.0 for one in work]
    apart = schedule == "sequential"
    time = sum(io + c if apart else max(io, c) for io, c in zip(loading, computing, strict=True))
    return Expected(load=sum(loading), compute=sum(computing), time=time)
