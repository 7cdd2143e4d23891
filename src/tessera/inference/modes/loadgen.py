"""The server scenario of MLPerf LoadGen at one rate, in the replica process.

LoadGen issues queries from its own thread, which must not block. Queries go into a queue, from which an answering
thread takes up to one batch at a time. Latency is measured from the time at which LoadGen issued the query.
"""

from __future__ import annotations

import importlib
import queue
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

from tessera.inference.modes.search import LATENCY_QUANTILE

LOADGEN_MODULE = "mlperf_loadgen"
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
