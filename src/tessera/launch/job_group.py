"""Run functions on the ranks of a job that the user started; this process is one of the ranks."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

from tessera.affinity import set_affinity
from tessera.errors import EXIT_BENCHMARK_FAILED, EXIT_TIMED_OUT, TesseraError
from tessera.launch.config import LaunchConfig
from tessera.launch.job import Job
from tessera.launch.placement import get_available_cpus, place_workers, read_numa_nodes
from tessera.launch.ranks import GlooRanks, connect_ranks
from tessera.launch.worker import Worker, call_function, pack_reply, unpack_reply

FAILURE_GRACE_SECONDS = 10.0  # seconds that the other ranks have to reply after a failure on this rank


class JobGroup:
    """The ranks of a job. Every rank runs the same program and gets the results of all ranks."""

    alive = True

    def __init__(self, config: LaunchConfig, job: Job) -> None:
        if job.size != config.workers:
            raise TesseraError(
                f"the number of workers must equal the number of ranks of this {job.kind} job",
                got=f"{config.workers} workers",
                allowed=str(job.size),
                do=f"request {job.size} workers, or start Tessera outside of the job",
            )
        self._ranks = connect_ranks(job)
        self._original_cpus = get_available_cpus()
        self._worker = Worker(
            rank=job.rank,
            size=job.size,
            spawn="torchrun" if isinstance(self._ranks, GlooRanks) else "mpiexec",
            cpus=_pin_rank(config.threads, job) if config.pin else (),
            threads=config.threads,
            sync=self._ranks,
        )

    def run(self, target: str, args: tuple[Any, ...], limit: float | None) -> list[Any]:
        """Call the function on this rank and gather the results of all ranks; an error is raised on every rank."""
        with self._abort_after(limit, f"no answer within the time limit of {limit or 0:g} s", EXIT_TIMED_OUT):
            reply = call_function(self._worker, target, args)
            grace = None if reply.error is None else FAILURE_GRACE_SECONDS
            with self._abort_after(grace, str(reply.error), EXIT_BENCHMARK_FAILED):
                packed = self._ranks.gather(pack_reply(self._worker, reply))
        replies = [unpack_reply(rank, data) for rank, data in enumerate(packed)]
        for reply in replies:
            if reply.error is not None:
                raise reply.error
        return [reply.value for reply in replies]

    def close(self, *, kill: bool) -> None:
        """Undo the pinning of this rank, because the next launch in this job may use different cores."""
        set_affinity(self._original_cpus)

    @contextlib.contextmanager
    def _abort_after(self, seconds: float | None, reason: str, code: int) -> Iterator[None]:
        """Abort the whole job if the body takes longer than `seconds`; only the job's launcher can end single ranks."""
        if seconds is None:
            yield
            return
        timer = threading.Timer(seconds, self._abort, (reason, code))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _abort(self, reason: str, code: int) -> None:
        print(f"tessera: rank {self._worker.rank} of {self._worker.size} ends the job: {reason}", file=sys.stderr)
        self._ranks.abort(code)


def _pin_rank(threads: int, job: Job) -> tuple[int, ...]:
    """Pin this rank, unless the launcher of the job has pinned it already; return its cores."""
    cpus = get_available_cpus()
    if len(cpus) < (os.cpu_count() or 1):
        return cpus
    chosen = place_workers(job.local_size, threads, cpus, read_numa_nodes())[job.local_rank]
    set_affinity(chosen)
    return chosen
