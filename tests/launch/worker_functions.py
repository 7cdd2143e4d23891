"""Worker functions of the launch tests; workers import them by name."""

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
from tessera.launch.job import get_current_job
from tessera.measure.allocator import detect_allocator
from tessera.transport.pingpong import open_link

calls = 0


class Unloadable:
    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("not a number",)


def multiply_rank(worker: Worker, factor: int) -> tuple[int, int, int]:
    return worker.rank * factor, worker.size, os.getpid()


def count(worker: Worker) -> int:
    global calls
    calls += 1
    return calls


def describe_surroundings(worker: Worker) -> dict[str, Any]:
    return {
        "cpus": worker.cpus,
        "affinity": tuple(sorted(os.sched_getaffinity(0))),
        "env": dict(os.environ),
        "allocator": detect_allocator(),
        "job": get_current_job(),
        "torch": "torch" in sys.modules,
        "mpi": "mpi4py.MPI" in sys.modules,
    }


def get_torch_threads(worker: Worker) -> int:
    import torch

    return torch.get_num_threads()


def keep_step(worker: Worker, value: int, pause: float) -> tuple[int, float, float]:
    """Delay rank 1 by `pause` seconds; return the agreed value, and the times of reaching and leaving the barrier."""
    worker.connect()
    agreed = worker.sync.agree(value + worker.rank)
    if worker.rank == 1:
        time.sleep(pause)
    reached = time.monotonic()
    worker.sync.barrier()
    return agreed, reached, time.monotonic()


def print_words(worker: Worker, word: str) -> None:
    print(f"{word} from {worker.rank}")
    os.write(2, f"native {word} from {worker.rank}\n".encode())


def kill_one_rank(worker: Worker, which: int, number: int) -> None:
    """Kill one rank while all other ranks wait for this rank."""
    if worker.size > 1:
        worker.connect()
    if worker.rank == which:
        os.write(2, b"so long, and thanks\n")
        os.kill(os.getpid(), number)
    worker.sync.barrier()


def exit_with_code(worker: Worker, code: int) -> None:
    os._exit(code)


def abort_natively(worker: Worker) -> None:
    ctypes.CDLL(None).abort()


def refuse(worker: Worker) -> None:
    raise Refused("not this one", got=worker.rank, allowed="another")


def raise_on_rank(worker: Worker, which: int) -> int:
    if worker.rank == which:
        raise ZeroDivisionError("nothing\nleft")
    return worker.rank


def raise_and_hang(worker: Worker) -> None:
    if worker.rank == 1:
        raise ZeroDivisionError("nothing left")
    worker.sync.barrier()
    worker.sync.barrier()


def return_unpicklable(worker: Worker) -> Any:
    return lambda: worker


def return_unloadable(worker: Worker) -> Unloadable:
    return Unloadable()


def pause(worker: Worker, seconds: float) -> None:
    time.sleep(seconds)


def hold_interpreter(worker: Worker, path: str) -> None:
    """Start a child process, then hang in native code that never releases the interpreter lock."""
    child = subprocess.Popen(["sleep", "300"])
    with open(f"{path}.{worker.rank}", "w") as file:
        file.write(f"{os.getpid()} {child.pid}\n")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ctypes.PyDLL(None).sleep(300)


def swap_bytes(worker: Worker, seed: int, size: int) -> tuple[bytes, bytes]:
    """Exchange random bytes three times, and return what this rank sent and received in the last exchange."""
    import random

    worker.connect()
    own = random.Random(seed + worker.rank)
    with open_link(worker, size) as link:
        for _ in range(3):
            link.sent[:] = own.randbytes(size)
            link.received[:] = bytes(size)
            link.exchange()
        return bytes(link.sent), bytes(link.received)
