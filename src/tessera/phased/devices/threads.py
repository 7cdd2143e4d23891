"""Devices as threads of this process, each pinned to cores of its own, with its own number of torch threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

import torch

from tessera.launch.placement import Cpus, available_cpus, numa_nodes, placement

Task = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]


class DeviceThreads:
    """One thread per device; what is given to a device is done there, in order.

    The threads are daemons: a model that nobody closed does not keep the interpreter from ending.
    """

    def __init__(self, devices: int, threads: int) -> None:
        before = torch.get_num_threads()
        self._tasks: list[SimpleQueue[Task | None]] = []
        self._threads = []
        for number, cpus in enumerate(placement(devices, threads, available_cpus(), numa_nodes())):
            tasks: SimpleQueue[Task | None] = SimpleQueue()
            thread = threading.Thread(target=_serve, args=(tasks,), name=f"tessera-device-{number}", daemon=True)
            thread.start()
            self._tasks.append(tasks)
            self._threads.append(thread)
            self.submit(number, _settle, cpus, threads).result()
        torch.set_num_threads(before)  # also the number that any later thread begins with

    def submit(self, device: int, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """Have a device call a function; the result, or the error, comes through the future."""
        future: Future[Any] = Future()
        self._tasks[device].put((future, function, args))
        return future

    def close(self) -> None:
        """End the threads when they are through with what they were given."""
        for tasks in self._tasks:
            tasks.put(None)
        for thread in self._threads:
            thread.join()


def _serve(tasks: SimpleQueue[Task | None]) -> None:
    while (task := tasks.get()) is not None:
        future, function, args = task
        try:
            future.set_result(function(*args))
        except BaseException as error:
            future.set_exception(error)
        del task, future, function, args  # nothing is kept alive while waiting


def _settle(cpus: Cpus, threads: int) -> None:
    os.sched_setaffinity(0, cpus)  # of this thread alone, and of those that it starts
    torch.set_num_threads(threads)
    torch.get_num_threads()  # now, not at the thread's first computing, it takes the number over for good
