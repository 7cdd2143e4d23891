"""Replica side of the pool: load a network, run windows of batches, report a summary.

The timed loop only calls the engine, gets the next batch and reads the clock once per batch: the end of a batch is the
start of the next batch. Several networks can be loaded at the same time under different names, as tuning requires.
"""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tessera.device.failures import explain_failures
from tessera.inference.agreement import check_agreement
from tessera.inference.data.feed import InputFeed
from tessera.inference.deployment.artefacts import Artefacts
from tessera.inference.engines.engine import Session
from tessera.inference.networks import compute_network_info
from tessera.inference.opening import OpenedSession, open_feed, open_session
from tessera.inference.replicas.replica_pool import LoadReport, ReplicaSummary
from tessera.inference.replicas.windows import BatchTimes
from tessera.inference.settings import Settings
from tessera.launch.worker import Worker
from tessera.measure.environment import describe_environment
from tessera.measure.sampler import disable_garbage_collection

START_DELAY_NS = 2_000_000  # nanoseconds from the barrier to the start of a window: all replicas know it by then


@dataclass(frozen=True, slots=True)
class ReadyNetwork:
    """A loaded network: its settings, open session and input feed."""

    settings: Settings
    opened: OpenedSession
    feed: InputFeed


_ready: dict[str, ReadyNetwork] = {}


def load_network(worker: Worker, name: str, settings: Settings, folder: str, check: bool) -> LoadReport:
    """Load a network under a name; with `check`, the first replica compares its outputs with torch."""
    unload_network(worker, name)
    began = time.perf_counter()
    with ExitStack() as undo:
        undo.enter_context(explain_failures(f"the network of replica {worker.rank}", settings.device))
        opened = open_session(settings, threads=worker.threads, artefacts=Artefacts(Path(folder)), replica=worker.rank)
        undo.callback(opened.close)
        first = time.perf_counter() - began
        agreement = check_agreement(settings, opened) if check and worker.rank == 0 else None
        depth = opened.session.depth
        feed = open_feed(settings, opened, in_use=depth + (depth > 1))  # one more: requested before a batch ends
        undo.callback(feed.close)
        opened.session.run(feed.next_batch())
        again = time.perf_counter()
        opened.session.run(feed.next_batch())
        took = time.perf_counter() - again
        undo.pop_all()
    _ready[name] = ReadyNetwork(settings, opened, feed)
    reset_peak_rss()  # the agreement check held a second network in memory
    if opened.device.asynchronous and opened.device.read_memory() is not None:
        opened.device.reset_peak_memory()
    return LoadReport(
        first_batch=first,
        first_batch_steps=dict(opened.seconds),
        batch_seconds=took,
        compute_dtype=opened.compute_dtype,
        notes=tuple(opened.notes),
        agreement=None if agreement is None else asdict(agreement),
    )


def unload_network(worker: Worker, name: str) -> None:
    """Free the network that is loaded under a name, if there is one."""
    if name in _ready:
        network = _ready.pop(name)
        network.feed.close()
        network.opened.close()


def is_ready(worker: Worker, name: str) -> bool:
    """Return whether a network is loaded under a name."""
    return name in _ready


def get_network(name: str) -> ReadyNetwork:
    """Return the network that is loaded under a name."""
    return _ready[name]


def run_window(worker: Worker, name: str, batches: int, seconds: float, alone: bool) -> BatchTimes | None:
    """Run at least `batches` batches and `seconds` seconds from a common start time.

    With `alone`, only the first replica runs; the others return None.
    """
    network = _ready[name]
    worker.sync.barrier()
    begin = worker.sync.agree(time.monotonic_ns() + START_DELAY_NS)  # replicas leave the barrier at different times
    if alone and worker.rank:
        return None
    loop = run_sequential if network.opened.session.depth == 1 else run_pipelined
    while time.monotonic_ns() < begin:
        pass
    device = network.opened.device
    with disable_garbage_collection(), explain_failures(f"replica {worker.rank}", network.settings.device):
        energy = device.read_driver().joules
        cpu = time.process_time_ns()
        starts, ends = loop(network.opened.session, network.feed, batches, seconds)
        cpu = time.process_time_ns() - cpu
        spent = None if energy is None else (device.read_driver().joules or 0.0) - energy
    times = BatchTimes(starts=tuple(starts), ends=tuple(ends), cpu_ns=cpu, device=device.name, device_joules=spent)
    print(format_instance_line(worker.rank, worker.size, times, network.settings.batch_size))
    return times


def run_sequential(session: Session, feed: InputFeed, batches: int, seconds: float) -> tuple[list[int], list[int]]:
    """Run batches sequentially; return the start and end of each batch in nanoseconds."""
    starts: list[int] = []
    ends: list[int] = []
    run, take, clock = session.run, feed.next_batch, time.perf_counter_ns
    now = clock()
    until = now + round(seconds * 1e9)
    while now < until or len(starts) < batches:
        starts.append(now)
        run(take())
        now = clock()
        ends.append(now)
    return starts, ends


def run_pipelined(session: Session, feed: InputFeed, batches: int, seconds: float) -> tuple[list[int], list[int]]:
    """Run batches with `session.depth` of them in flight; return the start and end of each batch in nanoseconds.

    The start of a batch is the time at which the session accepts it.
    """
    clock = time.perf_counter_ns
    starts: list[int] = []
    ends: dict[int, int] = {}

    def record_end(number: int) -> Callable[[], None]:
        return lambda: ends.__setitem__(number, clock())

    until = clock() + round(seconds * 1e9)
    while clock() < until or len(starts) < batches:
        session.submit(feed.next_batch(), record_end(len(starts)))
        starts.append(clock())
    session.drain()
    ordered = [ends[number] for number in range(len(starts))]
    # A very short batch may end before `submit` returns.
    return [min(*pair) for pair in zip(starts, ordered, strict=True)], ordered


def format_instance_line(rank: int, size: int, times: BatchTimes, batch: int) -> str:
    """Format a window of one replica in the output format of the IPU benchmarks.

    >>> format_instance_line(0, 4, BatchTimes(starts=(0, 10**8), ends=(10**8, 3 * 10**8)), 8)
    '[instance1/4] Throughput: 53.3 imgs/sec; Latency range: 100.0..200.0 ms'
    """
    latencies = [(end - start) / 1e6 for start, end in zip(times.starts, times.ends, strict=True)]
    rate = batch * len(latencies) / times.wall_ns * 1e9
    return (
        f"[instance{rank + 1}/{size}] Throughput: {rate:.1f} imgs/sec; "
        f"Latency range: {min(latencies):.1f}..{max(latencies):.1f} ms"
    )


def summarise_replica(worker: Worker, name: str) -> ReplicaSummary:
    """Return the summary of this replica; the first replica also counts the FLOPs per image."""
    network = _ready[name]
    notes, peak = (*network.opened.notes, *network.feed.notes()), read_peak_rss()
    device = network.opened.device
    memory, reading = device.read_memory(), device.read_driver()
    if reading.throttled:
        notes += (f"{device.name} was throttled: {', '.join(reading.throttled)}",)
    info = compute_network_info(network.settings) if worker.rank == 0 else None
    return ReplicaSummary(
        peak_rss=peak,
        notes=notes,
        environment=describe_environment(device=network.opened.session.device),
        peak_device=None if memory is None else memory.peak,
        conditions=reading.to_conditions(),
        flops_per_image=None if info is None else info.flops / network.settings.batch_size,
    )


def read_environment(worker: Worker, name: str) -> dict[str, Any]:
    """Return the environment of a loaded network: machine, libraries, settings and device."""
    return describe_environment(device=_ready[name].opened.session.device)


CLEAR_PEAK_RSS = "5"  # see clear_refs in proc(5)


def reset_peak_rss() -> None:
    """Free unused memory and reset the peak resident set size, if the allocator and the kernel support it."""
    gc.collect()
    with suppress(AttributeError, OSError):  # the allocator is not glibc's, or permission is denied
        ctypes.CDLL(None).malloc_trim(0)
        with open("/proc/self/clear_refs", "w") as file:
            file.write(CLEAR_PEAK_RSS)


def read_peak_rss() -> int:
    """Return the peak resident set size in bytes since the process start or the last reset."""
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0
