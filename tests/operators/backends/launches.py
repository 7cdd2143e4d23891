"""Checks of a backend's launches that the tests of several backends share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable

from tessera.launch import LaunchConfig
from tessera.launch.worker import RunContext
from tessera.measure.samples import Sampling
from tessera.results.record import Case
from tessera.suites.features import get_feature
from tessera.suites.worker_pools import WorkerPools


def count_threads_after_preload(backend: str) -> int:
    """Return the number of threads of a new process that has imported a backend."""
    program = (
        f"import os; from tessera.operators import backends; backends.load_backend({backend!r}).preload();"
        " print(len(os.listdir('/proc/self/task')))"
    )
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, check=True, timeout=60)
    return int(done.stdout)


def check_forked_launches(cases: Iterable[Case], threads: int) -> None:
    """Measure the cases in processes that are forked after the import, and check their records."""
    feature, sampling = get_feature("ops"), Sampling(warmup=0, iterations=3)
    with WorkerPools(LaunchConfig(threads=threads)) as pools:
        for case in cases:
            (record,) = pools.get_workers(case).run(
                "tessera.suites.worker:measure_case", feature, case, sampling, RunContext()
            )
            assert record.status == "ok"
            assert record.environment["threads"] == threads
            assert len(record.launches[0].values) == 3
