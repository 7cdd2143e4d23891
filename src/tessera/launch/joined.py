"""This process as one rank of a job that the user started with torchrun, mpiexec or Slurm."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

from tessera.errors import BENCHMARK_FAILED, TIMED_OUT, TesseraError
from tessera.launch.config import LaunchConfig
from tessera.launch.job import Job
from tessera.launch.placement import available_cpus, numa_nodes, placement
from tessera.launch.ranks import GlooRanks, ranks_of
from tessera.launch.worker import Worker, pack, perform, unpack

PATIENCE = 10.0  # after a failure here: for the ranks on other machines to end


class Joined:
    """Every rank of the job runs the same program and gets the same results."""

    alive = True

    def __init__(self, config: LaunchConfig, job: Job) -> None:
        if job.size != config.workers:
            raise TesseraError(
                f"this {job.kind} job has {job.size} ranks",
                got=f"{config.workers} workers",
                allowed=str(job.size),
                do=f"ask for {job.size} workers, or start Tessera outside of the job",
            )
        self._ranks = ranks_of(job)
        self._before = available_cpus()
        self._worker = Worker(
            rank=job.rank,
            size=job.size,
            spawn="torchrun" if isinstance(self._ranks, GlooRanks) else "mpiexec",
            cpus=_pin(config.threads, job) if config.pin else (),
            threads=config.threads,
            sync=self._ranks,
        )

    def run(self, target: str, args: tuple[Any, ...], limit: float | None) -> list[Any]:
        """Call the function on this rank and exchange the results; an error is raised on every rank."""
        with self._abort_after(limit, f"no answer within the time limit of {limit or 0:g} s", TIMED_OUT):
            reply = perform(self._worker, target, args)
            patience = None if reply.error is None else PATIENCE
            with self._abort_after(patience, str(reply.error), BENCHMARK_FAILED):
                packed = self._ranks.gather(pack(self._worker, reply))
        replies = [unpack(rank, data) for rank, data in enumerate(packed)]
        for found in replies:
            if found.error is not None:
                raise found.error
        return [found.value for found in replies]

    def close(self, *, kill: bool) -> None:
        """Give the cores back: the next launch in this job may want others."""
        os.sched_setaffinity(0, self._before)

    @contextlib.contextmanager
    def _abort_after(self, seconds: float | None, why: str, code: int) -> Iterator[None]:
        """End the whole job if the body takes longer; the ranks are not ours to kill one by one."""
        if seconds is None:
            yield
            return
        timer = threading.Timer(seconds, self._abort, (why, code))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _abort(self, why: str, code: int) -> None:
        print(f"tessera: rank {self._worker.rank} of {self._worker.size} ends the job: {why}", file=sys.stderr)
        self._ranks.abort(code)


def _pin(threads: int, job: Job) -> tuple[int, ...]:
    """Pin this rank, unless whoever started the job has done so already."""
    cpus = available_cpus()
    if len(cpus) < (os.cpu_count() or 1):
        return cpus
    chosen = placement(job.local_size, threads, cpus, numa_nodes())[job.local_rank]
    os.sched_setaffinity(0, chosen)
    return chosen
