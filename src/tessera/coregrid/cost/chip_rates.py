"""Rates of a core that the makers of the chips measured: transfers by kind, conversion to tiles, program launches.

All figures are from the repository tenstorrent/tt-metal at commit e4f9f0bb8d (2026-08-22). None is fitted to a
convolution or a network of this package's comparison with published times.

- Transfers: `tests/tt_metal/tt_metal/data_movement/python/test_mappings/test_bounds.yaml` (bytes per cycle of real
  kernels on one core or on all cores), `get_*_noc_transfer_rate` in
  `ttnn/cpp/ttnn/operations/conv/conv2d/conv2d_op_program_factory_common.cpp` (smallest and largest transfers), and
  `get_cycles_for_transaction_size` in `ttnn/cpp/ttnn/operations/data_movement/common/common.cpp` (latencies).
- Conversion of sticks to tiles: `get_tilize_cycles_per_tile` in the second file.
- Launches: `pgm_dispatch_golden.json` and `pgm_dispatch_blackhole_golden.json` in
  `tests/tt_metal/tt_metal/perf_microbenchmark/dispatch`, a replayed program with semaphores on all cores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FALLBACK_CHIP = "wormhole-n150"  # chip whose rates replace rates that are not known for a machine


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferRate:
    """Rate of one kind of transfer by one core.

    Messages are issued one after the other, `issue` seconds apart, and overlap on the network, which carries
    `bandwidth` bytes/s. `latency` is the time in seconds until the last message arrives.
    """

    issue: float
    bandwidth: float
    latency: float = 0.0

    def compute_seconds(self, count: float, messages: float = 1) -> float:
        """Return the seconds to move `count` bytes in `messages` messages.

        >>> TransferRate(issue=20e-9, bandwidth=1e9).compute_seconds(1000, 100)
        2e-06
        """
        return max(messages * self.issue, count / self.bandwidth) + self.latency if count else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipRates:
    """Measured rates of a chip.

    `gather`: a core reads windows from its own memory. `halo`: a core sends sticks to other cores. `reshard`: all cores
    send tiles to other cores. `bank`: one core reads tiles from global memory. `multicast`: one core sends a block to
    many cores; `handshake` is the time until all receivers are ready. `global_read` and `global_write` are the bytes/s
    of all cores together, for tensors that are interleaved over the banks of global memory.

    `tilize` holds the cycles to convert one tile of sticks, by bytes of a value in a stick and bytes of a tile of the
    result. `hop` is the time in seconds between neighbouring routers, `launch` the time to start a program.
    """

    clock: float
    gather: TransferRate
    halo: TransferRate
    reshard: TransferRate
    bank: TransferRate
    multicast: TransferRate
    handshake: float
    global_read: float
    global_write: float
    tilize: Mapping[tuple[int, int], int]
    hop: float
    launch: float


_GHZ = 1e9
CHIP_RATES = {
    "wormhole-n150": ChipRates(
        clock=1.0 * _GHZ,
        # "Conv Act with halo 3x3": 192 bytes at 3 bytes per cycle; large transfers: local memory, 27.84 GB/s
        gather=TransferRate(issue=64 / _GHZ, bandwidth=27.84e9, latency=56 / _GHZ),
        # "Conv Halo Gather": 10 bytes per cycle for one of the two processors that exchange the halo
        halo=TransferRate(issue=18.4e-9 / 2, bandwidth=2 * 10e9, latency=256 / _GHZ),
        reshard=TransferRate(issue=18.4e-9, bandwidth=10e9, latency=259 / _GHZ),  # "Reshard Hardcoded Many Cores"
        bank=TransferRate(issue=16 / 0.436e9, bandwidth=28.411e9, latency=358 / _GHZ),
        multicast=TransferRate(issue=16 / 0.318e9, bandwidth=22e9, latency=256 / _GHZ),  # "Multicast Linked"
        handshake=256 / _GHZ,
        global_read=1.9e9 * 64,  # "Multi Interleaved Read", on all cores
        global_write=1.7e9 * 64,
        tilize={(2, 4096): 92, (2, 2048): 61, (2, 1088): 40, (4, 4096): 107, (4, 2048): 74, (4, 1088): 74},
        hop=9 / _GHZ,
        launch=2.04e-6,
    ),
    "blackhole-p150": ChipRates(
        clock=1.35 * _GHZ,
        gather=TransferRate(issue=32 / 1.35e9, bandwidth=80.48e9, latency=88 / 1.35e9),
        halo=TransferRate(issue=14.2e-9 / 2, bandwidth=2 * 20 * 1.35e9, latency=404 / 1.35e9),
        reshard=TransferRate(issue=14.2e-9, bandwidth=25 * 1.35e9, latency=403 / 1.35e9),
        bank=TransferRate(issue=16 / 0.671e9, bandwidth=80.885e9, latency=529 / 1.35e9),
        multicast=TransferRate(issue=16 / 0.182e9, bandwidth=39 * 1.35e9, latency=404 / 1.35e9),
        handshake=404 / 1.35e9,
        global_read=1.5 * 1.35e9 * 130,
        global_write=1.2 * 1.35e9 * 130,
        tilize={(2, 4096): 105, (2, 2048): 72, (2, 1088): 60, (4, 4096): 132, (4, 2048): 132, (4, 1088): 132},
        hop=9 / 1.35e9,
        launch=1.66e-6,
    ),
}


def find_chip_rates(name: str) -> tuple[ChipRates, bool]:
    """Return the measured rates of a machine, and whether they are those of another chip (`FALLBACK_CHIP`)."""
    return CHIP_RATES.get(name, CHIP_RATES[FALLBACK_CHIP]), name not in CHIP_RATES
