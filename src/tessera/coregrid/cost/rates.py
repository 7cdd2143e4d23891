"""Arithmetic and transfer rates of one core, from the data file of a machine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tessera.coregrid.config import ComputeConfig, MathFidelity
from tessera.coregrid.formats import DataType
from tessera.machine import load_machine
from tessera.machine.cost import transfer_time
from tessera.machine.machine import Link, Machine

# The bandwidth of a core's memory in the machine's file is the bandwidth of both unpackers together: five accesses per
# cycle. A single unpacker makes four accesses per cycle (the second unpacker keeps its tile), and so do the packers.
ONE_UNPACKER_FRACTION = 4 / 5
# Seconds between small programs replayed on the device, measured by the manufacturer: `IterationTime` of
# brisc_only_trace/256 in tt-metal, tests/tt_metal/tt_metal/perf_microbenchmark/dispatch/pgm_dispatch_golden.json and
# pgm_dispatch_blackhole_golden.json.
LAUNCH_SECONDS = {"wormhole-n150": 2.58e-6, "blackhole-p150": 1.29e-6}
FALLBACK_MACHINE = "wormhole-n150"  # machine whose rates replace rates that are missing in a file


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreRates:
    """Rates of one core: FLOP/s of the matrix engine, bandwidths in bytes/s, and the link to other cores.

    `launch` is the time in seconds to start a program on all cores. `assumed` names the rates that are missing in the
    machine's file and are taken from `FALLBACK_MACHINE`.
    """

    flops: float
    local_bandwidth: float
    link: Link
    global_bandwidth: float
    launch: float
    assumed: tuple[str, ...] = ()

    def compute_transfer_seconds(self, count: float, messages: int = 1) -> float:
        """Return the seconds to move `count` bytes over the on-chip network in `messages` sequential messages."""
        return transfer_time(count, self.link, messages=messages) if count else 0.0

    def compute_local_seconds(self, count: float) -> float:
        """Return the seconds to move `count` bytes between the core's memory and its registers."""
        return count / (self.local_bandwidth * ONE_UNPACKER_FRACTION)

    def compute_global_read_seconds(self, count: float, messages: int, *, readers: int = 1) -> float:
        """Return the seconds for `readers` cores to read `count` bytes each from global memory concurrently."""
        return messages * self.link.latency + count / min(self.link.get_bandwidth(1), self.global_bandwidth / readers)


def get_core_rates(machine: Machine, compute: ComputeConfig, dtype: DataType) -> CoreRates:
    """Return the rates of one core. FLOP/s depend on the fidelity, or on `dtype` for machines without fidelities."""
    missing = tuple(name for name in ("local", "link", "global") if name not in machine.links)
    links = {
        name: (_load_fallback_machine() if name in missing else machine).get_link(name)
        for name in ("local", "link", "global")
    }
    return CoreRates(
        flops=_get_flops(machine, compute.math_fidelity, dtype),
        local_bandwidth=links["local"].get_bandwidth(1),
        link=links["link"],
        global_bandwidth=links["global"].get_bandwidth(machine.workers.size),
        launch=LAUNCH_SECONDS.get(machine.name, LAUNCH_SECONDS[FALLBACK_MACHINE]),
        assumed=(*(f"links.{name}" for name in missing), *(() if machine.name in LAUNCH_SECONDS else ("launch",))),
    )


def _get_flops(machine: Machine, fidelity: MathFidelity, dtype: DataType) -> float:
    if fidelity.name in machine.fidelity:
        return machine.get_rate(dtype.name, fidelity=fidelity.name)
    return (
        machine.get_rate(dtype.name)
        if dtype.name in machine.flops
        else max(table[0] for table in machine.flops.values())
    )


@lru_cache(maxsize=1)
def _load_fallback_machine() -> Machine:
    return load_machine(FALLBACK_MACHINE)
