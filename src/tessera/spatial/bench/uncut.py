"""The uncut convolution on the cores that the ranks have together: what a cut is held against.

Rank 0 computes it, with as many threads as there are cores, while the others sleep: MPI's own barrier would keep their
cores busy.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator

import torch

from tessera.launch.job import current_job
from tessera.launch.worker import Worker
from tessera.measure.room import available
from tessera.measure.sampler import Fn, sample
from tessera.measure.samples import Samples, Sampling
from tessera.spatial.bench.problem import Problem
from tessera.spatial.bench.rounds import gathered

NAP = 0.005  # seconds between two looks whether rank 0 is through
SHARE = 0.5  # of the memory that is free, for the uncut image, its output, and what the convolution needs besides
WORKSPACE = 3.0  # times image, output and weights: with gradients, and what kernels keep


def measure_uncut(
    worker: Worker, problem: Problem, make: Callable[[], Fn], sampling: Sampling
) -> tuple[Samples | None, tuple[str, ...]]:
    """Samples of what `make` gives on rank 0, for every rank; or none, with the reason."""
    why = _why_not(worker, problem)
    if why:
        return None, (f"no uncut convolution to compare with: {why}",)
    cpus = sorted({cpu for own in gathered(worker, worker.cpus) for cpu in own})
    threads = len(cpus) or min(worker.size * worker.threads, len(os.sched_getaffinity(0)))
    mine = None
    if worker.rank == 0:
        with _on(cpus, threads):
            mine = sample(make(), sampling)
    _wait_asleep(worker)
    return gathered(worker, mine)[0], (f"uncut on {threads} thread{'s' * (threads > 1)}",)


def _why_not(worker: Worker, problem: Problem) -> str:
    job = current_job()
    if job is not None and job.local_size < job.size:
        return "the ranks are on several hosts"
    needed = WORKSPACE * problem.footprint
    if worker.sync.agree(needed > SHARE * available()):
        return f"the whole image needs {needed / 2**30:.1f} GiB"
    return ""


@contextlib.contextmanager
def _on(cpus: list[int], threads: int) -> Iterator[None]:
    """Run on these cores with these threads, and give both back."""
    before = os.sched_getaffinity(0), torch.get_num_threads()
    if cpus:
        os.sched_setaffinity(0, cpus)
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before[1])
        os.sched_setaffinity(0, before[0])


def _wait_asleep(worker: Worker) -> None:
    """Return when rank 0 has come here, without keeping a core busy meanwhile."""
    if worker.spawn == "mpiexec" and worker.size > 1:
        from mpi4py import MPI

        request = MPI.COMM_WORLD.Ibarrier()
        while not request.Test():
            time.sleep(NAP)
    else:
        worker.sync.barrier()
