"""Estimated energy of a planned network: stated energies per operation and per byte, times their counts.

The energies are those of a 45 nm process (M. Horowitz, "Computing's Energy Problem", ISSCC 2014, figure 1.1.9); the
maker of the chips states none. They are not scaled to the chips' processes (12 and 6 nm), on which arithmetic and local
memory take less. Accelergy and SCALE-Sim count energy in the same way: actions times energy per action. The result is
an order of magnitude, to compare plans: leakage, clocks, fans and the host are not included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tessera.coregrid.formats import TILE_SIZE
from tessera.coregrid.networks.plan import NetworkPlan
from tessera.coregrid.planning.plan import ConvPlan

# Joules: a 16-bit floating-point multiplication (1.1 pJ) and addition (0.4 pJ); a byte of a local memory of 1 MiB
# (100 pJ per 64 bits); a byte of memory outside the chip (1.3 to 2.6 nJ per 64 bits: the mean).
MULTIPLY_ADD = 1.5e-12
LOCAL_BYTE = 100e-12 / 8
GLOBAL_BYTE = 1.95e-9 / 8


@dataclass(frozen=True, slots=True)
class NetworkEnergy:
    """Energy of one batch in joules, by cause."""

    parts: Mapping[str, float]

    @property
    def total(self) -> float:
        return sum(self.parts.values())


def estimate_energy(plan: NetworkPlan) -> NetworkEnergy:
    """Estimate the energy of one batch of a planned network.

    Arithmetic counts the multiplications that the cores execute, including padding to tiles and the zeros of grouped
    weights. Bytes between cores are read from one local memory and written to another.
    """
    products = local = outside = 0.0
    for step in plan.steps:
        option = step.option
        if option.plan is not None:
            ledger = option.plan.ledger
            products += _count_products(option.plan)
            local += ledger.local + 2 * (ledger.remote + ledger.multicast)
            outside += ledger.global_bytes
        else:
            rows, columns = plan.network.layers[step.number].matrix_size
            count = rows * plan.config.dtype.count_row_bytes(columns)
            if option.through_global:
                outside += count * (1 + len(option.sources))
            else:
                local += count * (1 + len(option.sources))
    passes = plan.compute.math_fidelity.value
    return NetworkEnergy(
        {
            "arithmetic": products * MULTIPLY_ADD * passes / 4,  # HiFi4 multiplies all mantissa bits
            "core memory": local * LOCAL_BYTE,
            "global memory": outside * GLOBAL_BYTE,
        }
    )


def _count_products(plan: ConvPlan) -> float:
    """Return the number of multiplications of a convolution on all cores, with padding."""
    plans = [part.plan for part in plan.slices] or [plan]
    total = 0.0
    for each in plans:
        blocks, sharding = each.blocks, each.sharding
        tiles = blocks.act_height * blocks.height_blocks * blocks.act_width * blocks.inner_blocks * blocks.out_width
        total += tiles * TILE_SIZE**3 * sharding.rows * sharding.out_columns
    return total
