"""The unsplit convolution on all cores of the ranks: the baseline of the split convolution.

Rank 0 computes it with one thread per core while the other ranks sleep. They do not wait in an MPI barrier, because
its busy waiting would occupy their cores.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import torch

from tessera.affinity import get_affinity, set_affinity
from tessera.launch.job import get_current_job
from tessera.launch.worker import Worker
from tessera.measure.memory_limits import get_available_bytes
from tessera.measure.sampler import Fn, sample
from tessera.measure.samples import Samples, Sampling
from tessera.spatial.bench.rounds import gather_values

POLL_SECONDS = 0.005  # seconds between two checks whether rank 0 is done
MEMORY_SHARE = 0.5  # share of the free memory for the image, its output and the workspace of the convolution
WORKSPACE_FACTOR = 3.0  # memory per byte of image, output and weights: gradients, and workspace of kernels


def measure_unsplit(
    worker: Worker, footprint: int, make: Callable[[], Fn], sampling: Sampling
) -> tuple[Samples | None, tuple[str, ...]]:
    """Time the callable `make()` on rank 0. Return on every rank: its samples (None if not measured), and notes.

    `footprint` is the number of bytes of the tensors that the callable uses.
    """
    obstacle = _find_obstacle(worker, footprint)
    if obstacle:
        return None, (f"no unsplit baseline: {obstacle}",)
    cpus = sorted({cpu for rank_cpus in gather_values(worker, worker.cpus) for cpu in rank_cpus})
    threads = len(cpus) or min(worker.size * worker.threads, len(get_affinity()))
    samples = None
    if worker.rank == 0:
        with _run_on(cpus, threads):
            samples = sample(make(), sampling)
    _wait_for_rank_0(worker)
    return gather_values(worker, samples)[0], (f"unsplit on {threads} thread{'s' * (threads > 1)}",)


def _find_obstacle(worker: Worker, footprint: int) -> str:
    job = get_current_job()
    if job is not None and job.local_size < job.size:
        return "the ranks are on several hosts"
    needed = WORKSPACE_FACTOR * footprint
    if worker.sync.agree(needed > MEMORY_SHARE * get_available_bytes()):
        return f"the whole image needs {needed / 2**30:.1f} GiB"
    return ""


@contextlib.contextmanager
def _run_on(cpus: list[int], threads: int) -> Iterator[None]:
    """Context manager: run on these cores with this number of threads, and restore both afterwards."""
    before = get_affinity(), torch.get_num_threads()
    if cpus:
        set_affinity(cpus)
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before[1])
        set_affinity(before[0])


def _wait_for_rank_0(worker: Worker) -> None:
    """Wait until rank 0 arrives, without keeping a core busy."""
    if worker.spawn == "mpiexec" and worker.size > 1:
        from mpi4py import MPI

        request = MPI.COMM_WORLD.Ibarrier()
        while not request.Test():
            time.sleep(POLL_SECONDS)
    else:
        worker.sync.barrier()
