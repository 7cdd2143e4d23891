"""What one core does a second, from the figures of its machine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tessera.coregrid.config import ComputeConfig, MathFidelity
from tessera.coregrid.formats import DataType
from tessera.machine import load_machine
from tessera.machine.cost import transfer_time
from tessera.machine.machine import Link, Machine

# The figure of a core's memory is both unpackers' together, five accesses a cycle; one of them alone, which is what
# streams tiles past those of the other, has four, and so have the packers.
ONE_SIDE = 4 / 5
# Seconds from one small program to the next when they are replayed on the device, as the maker of the chips measures
# it: `IterationTime` of brisc_only_trace/256 in tt-metal, tests/tt_metal/tt_metal/perf_microbenchmark/dispatch/
# pgm_dispatch_golden.json and pgm_dispatch_blackhole_golden.json.
LAUNCH = {"wormhole-n150": 2.58e-6, "blackhole-p150": 1.29e-6}
STAND_IN = "wormhole-n150"  # whose figure stands in for one that a machine's file does not have


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """FLOP/s of the matrix engine, bytes/s of the core's own memory, the way to other cores, and to global memory.

    `launch` is what it takes to start a program on all cores. `assumed` names the figures that the machine does not
    have and that another one's stand in for.
    """

    flops: float
    local: float
    link: Link
    globally: float
    launch: float
    assumed: tuple[str, ...] = ()

    def moved(self, count: float, messages: int = 1) -> float:
        """Seconds to move bytes over the network on chip in so many messages, one after the other."""
        return transfer_time(count, self.link, messages=messages) if count else 0.0

    def touched(self, count: float) -> float:
        """Seconds to bring bytes from the core's memory into its registers, or back."""
        return count / (self.local * ONE_SIDE)

    def read(self, count: float, messages: int, *, readers: int = 1) -> float:
        """Seconds until each of several cores has read as many bytes from global memory at once."""
        return messages * self.link.latency + count / min(self.link.at(1), self.globally / readers)


def rates_of(machine: Machine, compute: ComputeConfig, dtype: DataType) -> Rates:
    """The rates of one core at a fidelity; `dtype` is what it multiplies, where a machine has no fidelities."""
    missing = tuple(kind for kind in ("local", "link", "global") if kind not in machine.links)
    links = {kind: (_stand_in() if kind in missing else machine).link(kind) for kind in ("local", "link", "global")}
    return Rates(
        flops=_flops(machine, compute.math_fidelity, dtype),
        local=links["local"].at(1),
        link=links["link"],
        globally=links["global"].at(machine.workers.size),
        launch=LAUNCH.get(machine.name, LAUNCH[STAND_IN]),
        assumed=(*(f"links.{kind}" for kind in missing), *(() if machine.name in LAUNCH else ("launch",))),
    )


def _flops(machine: Machine, fidelity: MathFidelity, dtype: DataType) -> float:
    if fidelity.name in machine.fidelity:
        return machine.rate(dtype.name, fidelity=fidelity.name)
    return (
        machine.rate(dtype.name) if dtype.name in machine.flops else max(table[0] for table in machine.flops.values())
    )


@lru_cache(maxsize=1)
def _stand_in() -> Machine:
    return load_machine(STAND_IN)
