"""Inside a replica: a network that is made ready, and the windows in which batches run through it.

The loop that is timed calls the engine, asks for the next batch and reads the clock once, nothing else: a batch begins
when the one before has ended. Several networks may be ready at a time, by name, as a tuning needs them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tessera.inference.agreement import agreement
from tessera.inference.data import open_feed
from tessera.inference.data.feed import Feed
from tessera.inference.deployment.artefacts import Artefacts
from tessera.inference.engines.engine import Session
from tessera.inference.measures.windows import Stretch
from tessera.inference.networks import network_info
from tessera.inference.opening import Opened, open_session
from tessera.inference.replicas import resident
from tessera.inference.replicas.loaded import Aftermath, Loaded
from tessera.inference.settings import Settings
from tessera.launch.worker import Worker
from tessera.measure.environment import environment
from tessera.measure.sampler import no_garbage_collection

START_IN = 2_000_000  # nanoseconds: by then every replica has heard of it


@dataclass(frozen=True, slots=True)
class Ready:
    """A network ready to run, with its input."""

    settings: Settings
    opened: Opened
    feed: Feed


_ready: dict[str, Ready] = {}


def load(worker: Worker, name: str, settings: Settings, folder: str, check: bool) -> Loaded:
    """Make a network ready under a name; the first replica holds it against torch, if asked to."""
    unload(worker, name)
    began = time.perf_counter()
    with ExitStack() as undo:
        opened = open_session(settings, threads=worker.threads, artefacts=Artefacts(Path(folder)))
        undo.callback(opened.close)
        first = time.perf_counter() - began
        found = agreement(settings, opened) if check and worker.rank == 0 else None
        depth = opened.session.depth
        feed = open_feed(settings, opened, in_use=depth + (depth > 1))  # the next is asked for before one is done
        undo.callback(feed.close)
        opened.session.run(feed.next())
        again = time.perf_counter()
        opened.session.run(feed.next())
        took = time.perf_counter() - again
        undo.pop_all()
    _ready[name] = Ready(settings, opened, feed)
    resident.reset_peak()  # the check has a second network in memory
    return Loaded(
        first_batch=first,
        steps=dict(opened.seconds),
        batch=took,
        compute_dtype=opened.compute_dtype,
        notes=tuple(opened.notes),
        agreement=None if found is None else asdict(found),
    )


def unload(worker: Worker, name: str) -> None:
    """Let a network go."""
    if name in _ready:
        gone = _ready.pop(name)
        gone.feed.close()
        gone.opened.close()


def is_ready(worker: Worker, name: str) -> bool:
    """Whether a network was loaded under a name."""
    return name in _ready


def ready(name: str) -> Ready:
    """What was loaded under a name."""
    return _ready[name]


def window(worker: Worker, name: str, batches: int, seconds: float, alone: bool) -> Stretch | None:
    """Run batches from one instant on: at least so many, at least so long. `alone`, only the first replica does."""
    one = _ready[name]
    worker.sync.barrier()
    begin = worker.sync.agree(time.monotonic_ns() + START_IN)  # replicas leave a barrier one after the other
    if alone and worker.rank:
        return None
    loop = one_by_one if one.opened.session.depth == 1 else in_flight
    while time.monotonic_ns() < begin:
        pass
    with no_garbage_collection():
        cpu = time.process_time_ns()
        begun, ended = loop(one.opened.session, one.feed, batches, seconds)
        cpu = time.process_time_ns() - cpu
    stretch = Stretch(begun=tuple(begun), ended=tuple(ended), cpu=cpu)
    print(instance_line(worker.rank, worker.size, stretch, one.settings.batch_size))
    return stretch


def one_by_one(session: Session, feed: Feed, batches: int, seconds: float) -> tuple[list[int], list[int]]:
    """One batch after the other; when each began and ended."""
    begun: list[int] = []
    ended: list[int] = []
    run, take, clock = session.run, feed.next, time.perf_counter_ns
    now = clock()
    until = now + round(seconds * 1e9)
    while now < until or len(begun) < batches:
        begun.append(now)
        run(take())
        now = clock()
        ended.append(now)
    return begun, ended


def in_flight(session: Session, feed: Feed, batches: int, seconds: float) -> tuple[list[int], list[int]]:
    """Several batches at a time, as many as the session has places for; one begins when it has got its place."""
    clock = time.perf_counter_ns
    begun: list[int] = []
    ends: dict[int, int] = {}

    def done(number: int) -> Callable[[], None]:
        return lambda: ends.__setitem__(number, clock())

    until = clock() + round(seconds * 1e9)
    while clock() < until or len(begun) < batches:
        session.submit(feed.next(), done(len(begun)))
        begun.append(clock())
    session.drain()
    ended = [ends[number] for number in range(len(begun))]
    # a batch so short that it was over before its place was reported
    return [min(*pair) for pair in zip(begun, ended, strict=True)], ended


def instance_line(rank: int, size: int, stretch: Stretch, batch: int) -> str:
    """A window of one replica in the words of the IPU benchmarks.

    >>> instance_line(0, 4, Stretch(begun=(0, 10**8), ended=(10**8, 3 * 10**8)), 8)
    '[instance1/4] Throughput: 53.3 imgs/sec; Latency range: 100.0..200.0 ms'
    """
    times = [(end - begin) / 1e6 for begin, end in zip(stretch.begun, stretch.ended, strict=True)]
    rate = batch * len(times) / stretch.wall * 1e9
    return (
        f"[instance{rank + 1}/{size}] Throughput: {rate:.1f} imgs/sec; "
        f"Latency range: {min(times):.1f}..{max(times):.1f} ms"
    )


def aftermath(worker: Worker, name: str) -> Aftermath:
    """What is known at the end."""
    one = _ready[name]
    notes, peak = (*one.opened.notes, *one.feed.notes()), resident.peak()
    info = network_info(one.settings) if worker.rank == 0 else None
    return Aftermath(
        peak=peak,
        notes=notes,
        environment=environment(),
        flops_per_image=None if info is None else info.flops / one.settings.batch_size,
    )


def seen(worker: Worker) -> dict[str, Any]:
    """What a replica sees of its machine, libraries and settings."""
    return environment()
