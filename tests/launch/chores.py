"""Worker functions for the tests of launching; workers import them by name."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from typing import Any

from tessera.errors import Refused
from tessera.launch import Worker
from tessera.launch.job import current_job
from tessera.measure.allocator import current_allocator
from tessera.transport.pingpong import open_link

calls = 0


class Unloadable:
    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("not a number",)


def times(worker: Worker, factor: int) -> tuple[int, int, int]:
    return worker.rank * factor, worker.size, os.getpid()


def count(worker: Worker) -> int:
    global calls
    calls += 1
    return calls


def surroundings(worker: Worker) -> dict[str, Any]:
    return {
        "cpus": worker.cpus,
        "affinity": tuple(sorted(os.sched_getaffinity(0))),
        "env": dict(os.environ),
        "allocator": current_allocator(),
        "job": current_job(),
        "torch": "torch" in sys.modules,
        "mpi": "mpi4py.MPI" in sys.modules,
    }


def torch_threads(worker: Worker) -> int:
    import torch

    return torch.get_num_threads()


def keep_step(worker: Worker, value: int, pause: float) -> tuple[int, float, float]:
    """Rank 1 comes late: nobody may leave the barrier before it got there."""
    worker.join()
    agreed = worker.sync.agree(value + worker.rank)
    if worker.rank == 1:
        time.sleep(pause)
    came = time.monotonic()
    worker.sync.barrier()
    return agreed, came, time.monotonic()


def talk(worker: Worker, word: str) -> None:
    print(f"{word} from {worker.rank}")
    os.write(2, f"native {word} from {worker.rank}\n".encode())


def die(worker: Worker, which: int, number: int) -> None:
    """One rank is killed while the others wait for it."""
    if worker.size > 1:
        worker.join()
    if worker.rank == which:
        os.write(2, b"so long, and thanks\n")
        os.kill(os.getpid(), number)
    worker.sync.barrier()


def leave(worker: Worker, code: int) -> None:
    os._exit(code)


def abort_natively(worker: Worker) -> None:
    ctypes.CDLL(None).abort()


def refuse(worker: Worker) -> None:
    raise Refused("not this one", got=worker.rank, allowed="another")


def stumble(worker: Worker, which: int) -> int:
    if worker.rank == which:
        raise ZeroDivisionError("nothing\nleft")
    return worker.rank


def stumble_and_hang(worker: Worker) -> None:
    if worker.rank == 1:
        raise ZeroDivisionError("nothing left")
    worker.sync.barrier()
    worker.sync.barrier()


def unsendable(worker: Worker) -> Any:
    return lambda: worker


def unloadable(worker: Worker) -> Unloadable:
    return Unloadable()


def pause(worker: Worker, seconds: float) -> None:
    time.sleep(seconds)


def hold_interpreter(worker: Worker, path: str) -> None:
    """Start a child, then hang in native code that never lets go of the interpreter."""
    child = subprocess.Popen(["sleep", "300"])
    with open(f"{path}.{worker.rank}", "w") as file:
        file.write(f"{os.getpid()} {child.pid}\n")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ctypes.PyDLL(None).sleep(300)


def swap_bytes(worker: Worker, seed: int, size: int) -> tuple[bytes, bytes]:
    """What this rank sent and got, several times over with fresh bytes; the last exchange is given."""
    import random

    worker.join()
    own = random.Random(seed + worker.rank)
    with open_link(worker, size) as link:
        for _ in range(3):
            link.sent[:] = own.randbytes(size)
            link.received[:] = bytes(size)
            link.exchange()
        return bytes(link.sent), bytes(link.received)
