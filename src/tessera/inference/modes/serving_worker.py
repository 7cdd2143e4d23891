"""Replica side of mode server: generate arrivals, or run MLPerf LoadGen, and answer queries.

LoadGen issues queries from its own thread, which must not block. Queries go into a queue, from which an answering
thread takes up to one batch at a time. Latency is measured from the time at which LoadGen issued the query."""

from __future__ import annotations

import importlib
import queue
import random
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from tessera.inference.modes.load_modes import LATENCY_QUANTILE, LOADGEN_MODULE
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


SAMPLE_LIBRARY_SIZE = 64  # number of samples in LoadGen's library; queries ignore the sample and run the next batch

Query = tuple[int, int]  # LoadGen's query id and the time of issue


class QueryAnswerer:
    """A thread that answers queries; `error` is the exception of a failed batch, if any."""

    def __init__(self, loadgen: Any, run: Callable[[], object], batch: int) -> None:
        self._loadgen, self._run, self._batch = loadgen, run, batch
        self._waiting: queue.SimpleQueue[Query | None] = queue.SimpleQueue()
        self.latencies: list[float] = []
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._answer_queries, name="answers", daemon=True)
        self._thread.start()

    def enqueue(self, samples: Any) -> None:
        """Add the queries that LoadGen issues to the queue."""
        now = time.perf_counter_ns()
        for sample in samples:
            self._waiting.put((sample.id, now))

    def close(self) -> None:
        self._waiting.put(None)
        self._thread.join()

    def _answer_queries(self) -> None:
        while (first := self._waiting.get()) is not None:
            queries = [first]
            while len(queries) < self._batch and not self._waiting.empty():
                another = self._waiting.get()
                if another is None:
                    return
                queries.append(another)
            self._run_batch()
            done = time.perf_counter_ns()
            self.latencies += [(done - came) / 1e9 for _, came in queries]
            answered = [self._loadgen.QuerySampleResponse(number, 0, 0) for number, _ in queries]
            self._loadgen.QuerySamplesComplete(answered)

    def _run_batch(self) -> None:
        """Run a batch unless an earlier batch failed. The error is raised at the end: LoadGen waits for all answers."""
        if self.error is None:
            try:
                self._run()
            except Exception as error:
                self.error = error


def run_loadgen(
    run: Callable[[], object], *, rate: float, queries: int, bound: float, batch: int
) -> tuple[list[float], float]:
    """Run LoadGen at `rate` queries/s; return the latency of each query and the duration of the trial, in seconds."""
    lg: Any = importlib.import_module(LOADGEN_MODULE)  # an optional dependency
    answers = QueryAnswerer(lg, run, batch)
    sut = lg.ConstructSUT(answers.enqueue, lambda: None)
    qsl = lg.ConstructQSL(SAMPLE_LIBRARY_SIZE, SAMPLE_LIBRARY_SIZE, lambda samples: None, lambda samples: None)
    try:
        with tempfile.TemporaryDirectory(prefix="tessera-loadgen-") as folder:
            began = time.perf_counter()
            lg.StartTestWithLogSettings(
                sut, qsl, _build_test_settings(lg, rate, queries, bound), _build_log_settings(lg, folder)
            )
            took = time.perf_counter() - began
    finally:
        answers.close()
        lg.DestroyQSL(qsl)
        lg.DestroySUT(sut)
    if answers.error is not None:
        raise answers.error
    return answers.latencies, took


def _build_test_settings(lg: Any, rate: float, queries: int, bound: float) -> Any:
    settings = lg.TestSettings()
    settings.scenario = lg.TestScenario.Server
    settings.mode = lg.TestMode.PerformanceOnly
    settings.server_target_qps = rate
    settings.server_target_latency_ns = round(bound * 1e9)
    settings.server_target_latency_percentile = LATENCY_QUANTILE
    settings.min_query_count = settings.max_query_count = queries
    settings.min_duration_ms = 0
    return settings


def _build_log_settings(lg: Any, folder: str) -> Any:
    """Return log settings that send LoadGen's logs to a temporary folder; only the latencies are used."""
    settings = lg.LogSettings()
    settings.log_output.outdir = folder
    settings.log_output.copy_summary_to_stdout = False
    settings.enable_trace = False
    return settings
