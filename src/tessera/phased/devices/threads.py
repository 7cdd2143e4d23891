"""Devices as threads of this process, each pinned to cores of its own, with its own number of torch threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import Any

import torch

from tessera.launch.placement import Cpus, available_cpus, numa_nodes, placement

Task = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]


class DeviceThreads:
    """One thread per device; what is given to a device is done there, in order.

    The threads are daemons: a model that nobody closed does not keep the interpreter from ending. Without `pin` they
    run on any core that the caller may use.
    """

    def __init__(self, devices: int, threads: int, *, pin: bool = True) -> None:
        before = torch.get_num_threads()
        self._tasks: list[SimpleQueue[Task | None]] = []
        self._threads = []
        here = available_cpus()
        for number, cpus in enumerate(placement(devices, threads, here, numa_nodes()) if pin else (here,) * devices):
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

    def on_all(
        self, function: Callable[..., Any], args: Sequence[tuple[Any, ...]], give_up: Callable[[], None]
    ) -> list[Future[Any]]:
        """Have every device call a function with arguments of its own; none is at it any more when this comes back.

        Who waits may be interrupted (Ctrl-C): then `give_up` is called, which has to bring the devices to rest.
        """
        running: list[Future[Any]] = []
        try:
            for device, own in enumerate(args):
                running.append(self.submit(device, function, *own))
            wait(running)
        except BaseException:
            give_up()
            wait(running)
            raise
        return running

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
