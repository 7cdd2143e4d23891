"""Questions by MLPerf LoadGen, in the process that answers them: its server scenario at one rate.

LoadGen decides when a question arrives and gives it to us from a thread of its own, which must not wait: questions go
into a queue, and the thread that answers takes up to a batch of those that wait. A question's time counts from when
LoadGen asked it.
"""

from __future__ import annotations

import importlib
import queue
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

from tessera.inference.modes.search import QUANTILE

MODULE = "mlperf_loadgen"
SAMPLES = 64  # that LoadGen chooses from; whichever it is, the answer is the next batch of the feed

Question = tuple[int, int]  # what LoadGen knows it by, and when it came


class Answers:
    """Takes questions as they come and answers them in a thread of its own; `error` is what made an answer fail."""

    def __init__(self, loadgen: Any, run: Callable[[], object], batch: int) -> None:
        self._loadgen, self._run, self._batch = loadgen, run, batch
        self._waiting: queue.SimpleQueue[Question | None] = queue.SimpleQueue()
        self.latencies: list[float] = []
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._answer, name="answers", daemon=True)
        self._thread.start()

    def issue(self, samples: Any) -> None:
        now = time.perf_counter_ns()
        for sample in samples:
            self._waiting.put((sample.id, now))

    def close(self) -> None:
        self._waiting.put(None)
        self._thread.join()

    def _answer(self) -> None:
        while (first := self._waiting.get()) is not None:
            taken = [first]
            while len(taken) < self._batch and not self._waiting.empty():
                another = self._waiting.get()
                if another is None:
                    return
                taken.append(another)
            self._attempt()
            done = time.perf_counter_ns()
            self.latencies += [(done - came) / 1e9 for _, came in taken]
            answered = [self._loadgen.QuerySampleResponse(number, 0, 0) for number, _ in taken]
            self._loadgen.QuerySamplesComplete(answered)

    def _attempt(self) -> None:
        """Run a batch, unless one has failed: LoadGen waits for all answers, so the error is raised after them."""
        if self.error is None:
            try:
                self._run()
            except Exception as error:
                self.error = error


def asked(
    run: Callable[[], object], *, rate: float, questions: int, bound: float, batch: int
) -> tuple[list[float], float]:
    """Let LoadGen ask at a rate; the seconds of each answer, and of all together."""
    lg: Any = importlib.import_module(MODULE)  # an extra: not there for everybody who imports this
    answers = Answers(lg, run, batch)
    sut = lg.ConstructSUT(answers.issue, lambda: None)
    qsl = lg.ConstructQSL(SAMPLES, SAMPLES, lambda samples: None, lambda samples: None)
    try:
        with tempfile.TemporaryDirectory(prefix="tessera-loadgen-") as folder:
            began = time.perf_counter()
            lg.StartTestWithLogSettings(sut, qsl, _settings(lg, rate, questions, bound), _logging(lg, folder))
            took = time.perf_counter() - began
    finally:
        answers.close()
        lg.DestroyQSL(qsl)
        lg.DestroySUT(sut)
    if answers.error is not None:
        raise answers.error
    return answers.latencies, took


def _settings(lg: Any, rate: float, questions: int, bound: float) -> Any:
    settings = lg.TestSettings()
    settings.scenario = lg.TestScenario.Server
    settings.mode = lg.TestMode.PerformanceOnly
    settings.server_target_qps = rate
    settings.server_target_latency_ns = round(bound * 1e9)
    settings.server_target_latency_percentile = QUANTILE
    settings.min_query_count = settings.max_query_count = questions
    settings.min_duration_ms = 0
    return settings


def _logging(lg: Any, folder: str) -> Any:
    """LoadGen's own logs, in a folder that is removed: what they say is in the answers' times."""
    settings = lg.LogSettings()
    settings.log_output.outdir = folder
    settings.log_output.copy_summary_to_stdout = False
    settings.enable_trace = False
    return settings
