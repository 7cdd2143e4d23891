"""Balance of I/O and compute: the FLOPs per byte at which loading and computing take equally long.

An overlapped phase takes the longer of its load time and its compute time. Below the balance, a phase waits for its
weights; above it, the stream of weights is idle. The balance is the FLOP/s of the machine divided by the bytes/s of its
stream.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tessera.errors import TesseraError
from tessera.machine.catalogue import load_host, load_machine
from tessera.machine.machine import Machine
from tessera.measure.environment import compute_host_fingerprint
from tessera.phased.cases import CHAIN
from tessera.phased.choices import SCHEDULES, STORES
from tessera.report.figures import format_rate, format_seconds
from tessera.results.record import Record

IPU_MACHINE = "ipu-m2000"
IPU_VENDOR_FLOPS_PER_BYTE = (3_750, 7_500)  # range that the vendor advises for phased execution
BALANCE_TOLERANCE = 1.25  # within this factor of the balance, a case counts as balanced
DTYPE_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "int8": 1, "int4": 0.5625}


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """Compute rate (FLOP/s) and load bandwidth (bytes/s) of a machine that streams weights."""

    machine: str
    flops: float
    bandwidth: float
    source: str

    @property
    def flops_per_byte(self) -> float:
        """FLOPs per byte loaded at which loading and computing take equally long."""
        return self.flops / self.bandwidth


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """FLOPs per byte of a case, and the FLOPs per byte at which the case would be balanced.

    `alternatives` holds, for each option that changes the FLOPs per byte, the value of that option which
    balances the case if no other option is changed.
    """

    flops_per_byte: float
    needed_flops_per_byte: float
    alternatives: dict[str, int]

    @property
    def bound(self) -> str:
        """The bottleneck of the case: "bound by I/O", "bound by compute", or "balanced"."""
        ratio = self.flops_per_byte / self.needed_flops_per_byte
        if 1 / BALANCE_TOLERANCE <= ratio <= BALANCE_TOLERANCE:
            return "balanced"
        return "bound by I/O" if ratio < 1 else "bound by compute"


def get_measured_balance(record: Record) -> Balance | None:
    """Return the balance of this host, measured from the phases of a record; None if no weights were streamed."""
    metrics = record.metrics
    if not all(name in metrics for name in ("bytes", "flops", "load", "compute")):
        return None
    if not all(metrics[name].value > 0 for name in ("bytes", "flops", "load", "compute")):
        return None
    params = record.case.params
    schedule = SCHEDULES.get(str(params.get("schedule")))
    parallel = schedule is not None and schedule.computes_together == "always"
    together = f", {params['devices']} devices together" if parallel else ""
    return Balance(
        machine=f"this host, {record.details.get('storage', 'as measured')}{together}",
        flops=metrics["flops"].value / metrics["compute"].value,
        bandwidth=metrics["bytes"].value / metrics["load"].value,
        source="these phases, loaded and computed in isolation",
    )


def list_machine_balances(record: Record) -> list[Balance]:
    """Return the balances of machines with known rates: this host if it is calibrated, and the IPU."""
    balances = []
    host, threads = load_host(compute_host_fingerprint(record.environment)), int(record.case.params.get("threads", 1))
    if host is not None:
        for link, storage in _list_links().items():
            if link in host.links and "float32" in host.flops:
                machine = f"this host, {storage}"
                balances.append(_build_balance(host, machine, "float32", link, threads, "calibrated"))
    ipu = load_machine(IPU_MACHINE)
    low, high = IPU_VENDOR_FLOPS_PER_BYTE
    advised = f"its vendor advises {low:,} to {high:,}"
    return [*balances, _build_balance(ipu, ipu.title, "float16", "streaming", 1, f"machine catalogue; {advised}")]


def build_advice(record: Record) -> Advice:
    """Return the option values that would balance a case if its measured rates did not change."""
    balance = get_measured_balance(record)
    if balance is None:
        raise TesseraError(
            "advice requires a case that streams weights",
            got=record.case.key,
            do="choose a schedule that streams weights, and a budget smaller than the weights",
        )
    params = record.case.params
    flops_per_byte = record.metrics["flops"].value / record.metrics["bytes"].value
    factor = balance.flops_per_byte / flops_per_byte
    names = ("batch_size", "batches_per_step", *(("dsize",) if record.case.name == CHAIN else ()))
    values = {name: max(1, math.ceil(int(params[name]) * factor)) for name in names}
    return Advice(
        flops_per_byte=flops_per_byte,
        needed_flops_per_byte=balance.flops_per_byte,
        alternatives={name: value for name, value in values.items() if value != params[name]},
    )


def compute_balanced_product(needed: float, dtype: str, batches: int) -> float:
    """Return b x D (batch size times matrix size) of the matrix chain that has `needed` FLOPs per byte.

    A layer has 2 b D^3 FLOPs per mini-batch for D^2 weights.

    >>> compute_balanced_product(7500, "float16", 1)
    7500.0
    """
    return needed * DTYPE_BYTES[dtype] / 2 / batches


def format_advice(record: Record) -> list[str]:
    """Return the advice on one case as lines of text."""
    advice, params = build_advice(record), record.case.params
    lines = [
        f"{advice.bound}: {format_rate(advice.flops_per_byte, '')} FLOPs per byte loaded, "
        f"{format_rate(advice.needed_flops_per_byte, '')} would balance this host"
    ]
    if advice.bound == "bound by compute":
        lines.append("loading is hidden: a smaller --weight-budget costs no time")
    elif advice.bound != "balanced" and advice.alternatives:
        options = [f"--{name.replace('_', '-')} {value}" for name, value in advice.alternatives.items()]
        lines.append(f"to balance: {' or '.join(options)}, if both rates stay as measured")
    if record.case.name == CHAIN:
        batches = int(params["batches_per_step"])
        product = compute_balanced_product(advice.needed_flops_per_byte, str(params["dtype"]), batches)
        lines.append(
            f"batch size x matrix size: {int(params['batch_size']) * int(params['dsize']):,} with "
            f"{batches} mini-batch{'es' * (batches > 1)} per load, balanced at {math.ceil(product):,}"
        )
    if "time" in record.predicted and "time" in record.metrics:
        predicted, took = record.predicted["time"].value, record.metrics["time"].value
        lines.append(
            f"predicted {format_seconds(predicted)} per iteration, "
            f"measured {format_seconds(took)}: {took / predicted:.2f}x"
        )
    else:
        lines.append("no prediction: this host is not calibrated; run `tessera doctor --calibrate`")
    return lines


def list_balances(records: Sequence[Record]) -> list[Balance]:
    """Return all balances: one measured balance for each kind of storage, then the machines with known rates."""
    measured = [balance for record in records if (balance := get_measured_balance(record)) is not None]
    return [
        *{balance.machine: balance for balance in measured}.values(),
        *(list_machine_balances(records[0]) if records else ()),
    ]


def _list_links() -> dict[str, str]:
    """Return the links of a calibrated host over which weights are loaded, each with the name of its storage."""
    cold = {store.cold_link: store.cold_storage for store in STORES.values() if store.cold_link is not None}
    return cold | {store.link: store.storage for store in STORES.values() if store.link is not None}


def _build_balance(machine: Machine, name: str, dtype: str, link: str, workers: int, source: str) -> Balance:
    flops = machine.get_rate(dtype, workers=workers)
    bandwidth = machine.get_bandwidth(link, workers=workers)
    return Balance(machine=name, flops=flops, bandwidth=bandwidth, source=f"{source}, {dtype}")
