"""Inside a replica: answers questions as they arrive."""

from __future__ import annotations

import time

from tessera.inference.modes.arrivals import answer, poisson
from tessera.inference.replicas.inside import ready
from tessera.launch.worker import Worker
from tessera.measure.sampler import no_garbage_collection

Served = tuple[list[float], float]


def serve(worker: Worker, name: str, rate: float, questions: int) -> Served:
    """Answer questions that arrive at random at a rate; the seconds of each, and of all together."""
    one = ready(name)
    arrivals = poisson(rate, questions, seed=worker.rank)
    worker.sync.barrier()
    with no_garbage_collection():
        began = time.perf_counter()
        latencies = answer(lambda: one.opened.session.run(one.feed.next()), arrivals, one.settings.batch_size)
        return latencies, time.perf_counter() - began


def serve_loadgen(worker: Worker, name: str, rate: float, questions: int, bound: float) -> Served:
    """The same, asked by MLPerf LoadGen."""
    from tessera.inference.modes.loadgen import asked

    one = ready(name)
    return asked(
        lambda: one.opened.session.run(one.feed.next()),
        rate=rate,
        questions=questions,
        bound=bound,
        batch=one.settings.batch_size,
    )
