"""Measurement of the overheads of this host that do not depend on sizes: per operation, and per message.

- launch: one operation of torch on a tensor of one element.
- dispatch: an operation on split tensors, beyond the launches of its local operations. A small network is run on one
  rank; its local operations and dispatches are counted by a dry run.
- message: one message of a transfer, beyond the latency of the link and the launches of the copies around it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from statistics import median

import torch
from torch import nn

from tessera.errors import MissingExtra
from tessera.geometry import Box
from tessera.launch import LaunchConfig, Workers
from tessera.launch.config import SpawnMethod
from tessera.launch.worker import Worker
from tessera.machine import fit_link
from tessera.machine.machine import Link
from tessera.spatial.parallel_model import parallelize
from tessera.spatial.scaling.dry_run import run_dry
from tessera.spatial.tensor.layout import split_dims_evenly
from tessera.spatial.tensor.transfer import Transfer
from tessera.transport.in_process import open_single_rank
from tessera.transport.registry import open_transport

LAUNCHES_PER_SAMPLE, SAMPLES = 1000, 15
NETWORK_BLOCKS, NETWORK_PIXELS, NETWORK_CHANNELS = 4, 8, 4
EXCHANGES, WARMUP_EXCHANGES = 300, 20
LINK_MESSAGE_BYTES = (1 << 10, 1 << 14, 1 << 18, 1 << 22)
COPIES_PER_EXCHANGE = 3  # into the sent buffer, out of the received buffer, and of the rank's own elements
MESSAGE_TRANSPORTS = {"mpiexec": "mpi", "torchrun": "gloo"}  # the transports whose link a calibration measures
MIN_OVERHEAD = 1e-9  # seconds; noise must not make an overhead negative


def measure_transfers_and_overheads(
    launchers: Sequence[SpawnMethod], *, required: bool, say: Callable[[str], None]
) -> tuple[list[dict[str, float]] | None, dict[str, float]]:
    """Measure transfers between two ranks (`bytes` and `seconds` each), and the overheads (`machine.OVERHEADS`).

    The ranks are started by the first of `launchers` that is available. Without any, transfers are None and the
    overhead of a message is missing, or an error if `required`.
    """
    transfers, exchange = None, 0.0
    for spawn in launchers:
        say(f"transfers between two ranks of {spawn}")
        try:
            with Workers(LaunchConfig(spawn=spawn, workers=2, time_limit=120.0)) as workers:
                (transfers, _) = workers.run("tessera.transport.pingpong:measure_pingpong", LINK_MESSAGE_BYTES, 200)
                exchange = max(workers.run("tessera.spatial.scaling.overheads:time_small_exchange"))
            break
        except MissingExtra:
            if required:
                raise
    say("small operations")
    overheads = measure_operation_overheads()
    if transfers is not None:
        transfers = list(transfers)
        overheads["message"] = compute_message_overhead(exchange, fit_link(transfers), overheads["launch"])
    return transfers, overheads


def measure_operation_overheads() -> dict[str, float]:
    """Return the seconds of a launch and of a dispatch on this host, with one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        launch = _measure_launch()
        return {"launch": launch, "dispatch": _measure_dispatch(launch)}
    finally:
        torch.set_num_threads(threads)


def _measure_launch() -> float:
    one, other = torch.ones(1), torch.ones(1)

    def launch_many() -> None:
        for _ in range(LAUNCHES_PER_SAMPLE):
            torch.add(one, other)

    return _time_best(launch_many) / LAUNCHES_PER_SAMPLE


def _measure_dispatch(launch: float) -> float:
    shape = (NETWORK_PIXELS, NETWORK_PIXELS)
    run = run_dry(_build_network(), shape, (1, 1), channels=NETWORK_CHANNELS)
    parallel = parallelize(_build_network(), (1, 1), transport=open_single_rank())
    tile = parallel.scatter(torch.randn(1, NETWORK_CHANNELS, *shape, generator=torch.Generator().manual_seed(0)))

    def step() -> None:
        parallel.zero_grad(set_to_none=True)
        parallel(tile).sum().backward()

    step()
    return max(MIN_OVERHEAD, (_time_best(step) - len(run.operations) * launch) / run.dispatches)


def _build_network() -> nn.Module:
    layers: list[nn.Module] = []
    for _ in range(NETWORK_BLOCKS):
        conv = nn.Conv2d(NETWORK_CHANNELS, NETWORK_CHANNELS, 3, padding=1)
        layers += [conv, nn.BatchNorm2d(NETWORK_CHANNELS), nn.ReLU()]
    return nn.Sequential(*layers)


def _time_best(work: Callable[[], object]) -> float:
    """Return the minimum CPU time of one call, which other programs hardly affect."""
    work()
    times = []
    for _ in range(SAMPLES):
        start = time.process_time_ns()
        work()
        times.append((time.process_time_ns() - start) / 1e9)
    return min(times)


def time_small_exchange(worker: Worker) -> float:
    """Return the median seconds in which two ranks exchange one element by a transfer. Both ranks call this."""
    with closing(open_transport(MESSAGE_TRANSPORTS[worker.spawn], worker)) as transport:
        layout = split_dims_evenly((1, 1, 2, 2), (3,), (2,))
        transfer = Transfer(layout, (Box.from_sizes(layout.sizes),) * 2, transport)
        tile = torch.ones(layout.get_factor_shape(transport.rank))
        times = []
        for _ in range(WARMUP_EXCHANGES + EXCHANGES):
            start = time.perf_counter_ns()
            transfer.run(tile)
            times.append((time.perf_counter_ns() - start) / 1e9)
    return median(times[WARMUP_EXCHANGES:])


def compute_message_overhead(exchange: float, link: Link, launch: float) -> float:
    """Return the overhead of a message from the time of a small exchange.

    >>> compute_message_overhead(30e-6, Link(bandwidth=(1e9,), latency=5e-6), 1e-6)
    2.2e-05
    """
    return max(MIN_OVERHEAD, round(exchange - link.latency - COPIES_PER_EXCHANGE * launch, 12))
