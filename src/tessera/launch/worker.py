"""The arguments of worker functions, and the replies that workers send back."""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass, field
from typing import Any

from tessera.errors import BenchmarkFailed, TesseraError
from tessera.launch.config import LaunchConfig, SpawnMethod
from tessera.launch.fresh import format_error_line, load_object
from tessera.measure.sync import SINGLE_RANK, Sync


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """The first argument of every worker function: the worker's rank, cores, and connection to the other ranks.

    `cpus` are the cores that the worker is pinned to; empty if it is not pinned.
    """

    rank: int
    size: int
    spawn: SpawnMethod
    cpus: tuple[int, ...]
    threads: int
    sync: Sync

    def connect(self) -> None:
        """Connect to the other ranks now instead of at the first use of `sync`. Every rank has to call this method."""
        self.sync.barrier()


INLINE_WORKER = Worker(rank=0, size=1, spawn="inline", cpus=(), threads=1, sync=SINGLE_RANK)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """The first argument of a feature's run hook: the worker, and the settings of the run.

    `launch` is the requested configuration of the run. A case that starts its own processes uses its
    pinning, allocator and environment. `session` is the object that the feature's session hook opened for this run; it
    is available only in the calling process (inline).
    """

    worker: Worker = INLINE_WORKER
    launch: LaunchConfig = field(default_factory=LaunchConfig)
    session: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The reply of one rank: a value or an error."""

    value: Any = None
    error: TesseraError | None = None


def call_function(worker: Worker, target: str, args: tuple[Any, ...]) -> Reply:
    """Call a worker function, and turn any exception into an error message of one line."""
    try:
        function = load_object(target)
        _limit_torch_threads(worker.threads)
        return Reply(value=function(worker, *args))
    except TesseraError as error:
        return Reply(error=error)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return Reply(error=BenchmarkFailed(f"rank {worker.rank} of {worker.size} raised {format_error_line(error)}"))


def pack_reply(worker: Worker, reply: Reply) -> bytes:
    """Pickle a reply by value; multiprocessing's pickler would send tensors as handles to shared memory."""
    try:
        return pickle.dumps(reply)
    except Exception as error:
        rank = f"rank {worker.rank} of {worker.size}"
        failure = BenchmarkFailed(f"{rank} returned a value that cannot be pickled: {format_error_line(error)}")
        return pickle.dumps(Reply(error=failure))


def unpack_reply(rank: int, data: bytes) -> Reply:
    """Unpickle the reply of a rank; a failure becomes an error reply."""
    try:
        reply = pickle.loads(data)
    except Exception as error:
        failure = BenchmarkFailed(f"the result of rank {rank} cannot be unpickled: {format_error_line(error)}")
        return Reply(error=failure)
    assert isinstance(reply, Reply)
    return reply


def _limit_torch_threads(threads: int) -> None:
    """Set torch's number of threads if torch is imported; a later import reads OMP_NUM_THREADS."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
