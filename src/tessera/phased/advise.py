"""How much a byte that is loaded has to pay for: FLOPs per byte at which loading and computing take equally long.

A phase takes the longer of both. Below the balance it waits for its weights, above it the stream is idle; so the
best use of both is at the balance: the FLOP/s of the machine over the bytes/s of its stream.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tessera.errors import TesseraError
from tessera.machine.catalogue import load_machine
from tessera.machine.hosts import load_host
from tessera.machine.machine import Machine
from tessera.measure.environment import host_fingerprint
from tessera.phased.cases import CHAIN
from tessera.report.figures import format_rate, format_seconds
from tessera.results.record import Record

IPU = "ipu-m2000"
HEURISTIC = (3_750, 7_500)  # FLOPs per byte: what the vendor of the IPU advises for its phased execution
NEAR = 1.25  # within this factor of the balance neither side decides
BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """A machine that streams weights: FLOP/s, bytes/s of its stream, and the FLOPs per byte that balance them."""

    who: str
    flops: float
    stream: float
    source: str

    @property
    def needed(self) -> float:
        return self.flops / self.stream


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Where a case stands: FLOPs per byte that it has and needs, what bounds it, and what would balance it.

    `instead` holds a value for each option that decides about the FLOPs per byte, if the others stay as they are.
    """

    has: float
    needed: float
    instead: dict[str, int]

    @property
    def bound(self) -> str:
        if self.needed / NEAR <= self.has <= self.needed * NEAR:
            return "balanced"
        return "bound by I/O" if self.has < self.needed else "bound by compute"


def measured_balance(record: Record) -> Balance | None:
    """The balance of this host as the record's own phases showed it; None where it streamed nothing."""
    metrics = record.metrics
    if not all(name in metrics for name in ("bytes", "flops", "load", "compute")):
        return None
    if not all(metrics[name].value > 0 for name in ("bytes", "flops", "load", "compute")):
        return None
    params = record.case.params
    together = f", {params['devices']} devices together" if params.get("schedule") == "data-parallel" else ""
    return Balance(
        who=f"this host, {record.conditions.get('storage', 'as measured')}{together}",
        flops=metrics["flops"].value / metrics["compute"].value,
        stream=metrics["bytes"].value / metrics["load"].value,
        source="these phases, each loaded and computed by itself",
    )


def machine_balances(record: Record) -> list[Balance]:
    """The same of machines as they are described: this host where it was calibrated, and the IPU."""
    found = []
    host, threads = load_host(host_fingerprint(record.environment)), int(record.case.params.get("threads", 1))
    if host is not None:
        for link, words in (("streaming", "cold disk"), ("streaming_warm", "warm disk"), ("copy", "host memory")):
            if link in host.links and "float32" in host.flops:
                found.append(_described(host, f"this host, {words}", "float32", link, threads, "calibrated"))
    ipu = load_machine(IPU)
    low, high = HEURISTIC
    advised = f"its vendor advises {low:,} to {high:,}"
    return [*found, _described(ipu, ipu.title, "float16", "streaming", 1, f"described; {advised}")]


def advice(record: Record) -> Advice:
    """What to do about a case, if its rates stay as they were measured."""
    here = measured_balance(record)
    if here is None:
        raise TesseraError(
            "nothing was streamed, so there is nothing to balance",
            got=record.case.key,
            do="choose a schedule that streams, and a budget below all weights",
        )
    params = record.case.params
    has = record.metrics["flops"].value / record.metrics["bytes"].value
    more = here.needed / has
    names = ("batch_size", "batches_per_step", *(("dsize",) if record.case.name == CHAIN else ()))
    instead = {name: max(1, math.ceil(int(params[name]) * more)) for name in names}
    changed = {name: value for name, value in instead.items() if value != params[name]}
    return Advice(has=has, needed=here.needed, instead=changed)


def product_needed(needed: float, dtype: str, batches: int) -> float:
    """The b x D of a matrix chain that has so many FLOPs per byte: 2 b D^3 FLOPs for D^2 weights, batches times over.

    >>> product_needed(7500, "float16", 1)
    7500.0
    """
    return needed * BYTES[dtype] / 2 / batches


def advice_lines(record: Record) -> list[str]:
    """What is said to a user about one case."""
    found, params = advice(record), record.case.params
    lines = [
        f"{found.bound}: {format_rate(found.has, '')} FLOPs per byte loaded, "
        f"{format_rate(found.needed, '')} balance this host"
    ]
    if found.bound != "balanced" and found.instead:
        options = [f"--{name.replace('_', '-')} {value}" for name, value in found.instead.items()]
        lines.append(f"to balance: {' or '.join(options)}, if both rates stay as measured")
    if record.case.name == CHAIN:
        batches = int(params["batches_per_step"])
        wanted = product_needed(found.needed, str(params["dtype"]), batches)
        lines.append(
            f"b x D = {int(params['batch_size']) * int(params['dsize']):,}, "
            f"{batches} mini-batch{'es' * (batches > 1)} to a load; "
            f"{math.ceil(wanted):,} balances them"
        )
    if "time" in record.predicted and "time" in record.metrics:
        predicted, took = record.predicted["time"].value, record.metrics["time"].value
        lines.append(
            f"predicted {format_seconds(predicted)} an iteration, "
            f"measured {format_seconds(took)}: {took / predicted:.2f}x"
        )
    else:
        lines.append("no time is predicted: this host is not calibrated for it (`tessera doctor --calibrate`)")
    return lines


def balances(records: Sequence[Record]) -> list[Balance]:
    """Every balance that is known: those measured, then those of described machines."""
    seen = [found for record in records if (found := measured_balance(record)) is not None]
    return [*{one.who: one for one in seen}.values(), *(machine_balances(records[0]) if records else ())]


def _described(machine: Machine, who: str, dtype: str, link: str, workers: int, source: str) -> Balance:
    flops = machine.rate(dtype, workers=workers)
    stream = machine.bandwidth(link, workers=workers)
    return Balance(who=who, flops=flops, stream=stream, source=f"{source}, {dtype}")
