"""Replica side of mode server: generate arrivals and answer queries."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from tessera.inference.replicas.replica_worker import get_network
from tessera.launch.worker import Worker
from tessera.measure.sampler import disable_garbage_collection

QueryTimes = tuple[list[float], float]  # latency of each query, and duration of the trial, in seconds


def serve_poisson(worker: Worker, name: str, rate: float, queries: int) -> QueryTimes:
    """Answer queries with Poisson arrivals; return the latency of each and the duration of the trial, in seconds."""
    network = get_network(name)
    arrivals = draw_poisson_arrivals(rate, queries, seed=worker.rank)
    worker.sync.barrier()
    with disable_garbage_collection():
        began = time.perf_counter()
        latencies = answer_queries(
            lambda: network.opened.session.run(network.feed.next_batch()), arrivals, network.settings.batch_size
        )
        return latencies, time.perf_counter() - began


def serve_loadgen(worker: Worker, name: str, rate: float, queries: int, bound: float) -> QueryTimes:
    """Answer queries from MLPerf LoadGen; return the latency of each and the duration of the trial, in seconds."""
    from tessera.inference.modes.loadgen import run_loadgen

    network = get_network(name)
    return run_loadgen(
        lambda: network.opened.session.run(network.feed.next_batch()),
        rate=rate,
        queries=queries,
        bound=bound,
        batch=network.settings.batch_size,
    )


Clock = Callable[[], int]
BUSY_WAIT_NS = 200_000  # nanoseconds of busy-waiting at the end of a wait, because a sleep may overshoot


def draw_poisson_arrivals(rate: float, count: int, seed: int) -> list[int]:
    """Return the arrival times in nanoseconds of `count` queries, a Poisson process of `rate` queries/s."""
    generator = random.Random(seed)
    times, now = [], 0.0
    for _ in range(count):
        now += generator.expovariate(rate)
        times.append(round(now * 1e9))
    return times


def answer_queries(
    run: Callable[[], object],
    arrivals: Sequence[int],
    batch: int,
    *,
    clock: Clock = time.perf_counter_ns,
    sleep: Callable[[float], None] = time.sleep,
) -> list[float]:
    """Answer queries as they arrive, up to `batch` at a time; return the latency of each query in seconds.

    Latency is measured from the scheduled arrival, so that it includes queueing delay (no coordinated omission).
    """
    start = clock()
    moments = [start + moment for moment in arrivals]
    done_count, answered = 0, []
    while done_count < len(moments):
        now = wait_until(moments[done_count], clock, sleep)
        waiting = done_count + 1
        while waiting < len(moments) and waiting - done_count < batch and moments[waiting] <= now:
            waiting += 1
        run()
        done = clock()
        answered += [(done - moment) / 1e9 for moment in moments[done_count:waiting]]
        done_count = waiting
    return answered


def wait_until(moment: int, clock: Clock, sleep: Callable[[float], None]) -> int:
    """Sleep until shortly before `moment` (nanoseconds), busy-wait until it, and return the current time."""
    now = clock()
    while now < moment:
        if moment - now > BUSY_WAIT_NS:
            sleep((moment - now - BUSY_WAIT_NS) / 1e9)
        now = clock()
    return now
