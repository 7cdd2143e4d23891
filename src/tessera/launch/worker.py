"""What a worker function sees, and what becomes of its result or its error."""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass
from typing import Any

from tessera.errors import BenchmarkFailed, TesseraError
from tessera.launch.config import Spawn
from tessera.launch.fresh import in_one_line, resolve
from tessera.measure.sync import Sync


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """The first argument of every worker function: which rank it is, where it runs, how it keeps step.

    `cpus` are the cores it is pinned to, empty if it is not pinned.
    """

    rank: int
    size: int
    spawn: Spawn
    cpus: tuple[int, ...]
    threads: int
    sync: Sync

    def join(self) -> None:
        """Connect to the other ranks now rather than at the first use of `sync`; every rank has to."""
        self.sync.barrier()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What one rank answers: a value, or the error that took its place."""

    value: Any = None
    error: TesseraError | None = None


def perform(worker: Worker, target: str, args: tuple[Any, ...]) -> Reply:
    """Call a worker function; whatever it raises becomes an error that a user can read in one line."""
    try:
        function = resolve(target)
        _limit_torch(worker.threads)
        return Reply(value=function(worker, *args))
    except TesseraError as error:
        return Reply(error=error)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return Reply(error=BenchmarkFailed(f"rank {worker.rank} of {worker.size} raised {in_one_line(error)}"))


def pack(worker: Worker, reply: Reply) -> bytes:
    """The reply as bytes. Plain pickle: multiprocessing's would send tensors as handles to shared memory."""
    try:
        return pickle.dumps(reply)
    except Exception as error:
        what = f"rank {worker.rank} of {worker.size} gave a result that cannot be sent: {in_one_line(error)}"
        return pickle.dumps(Reply(error=BenchmarkFailed(what)))


def unpack(rank: int, data: bytes) -> Reply:
    """The reply of a rank; one that cannot be read here is an error of its own."""
    try:
        reply = pickle.loads(data)
    except Exception as error:
        return Reply(error=BenchmarkFailed(f"the result of rank {rank} cannot be read here: {in_one_line(error)}"))
    assert isinstance(reply, Reply)
    return reply


def _limit_torch(threads: int) -> None:
    """Set torch's threads if the function's module imported torch; a later import reads OMP_NUM_THREADS."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
