"""Device threads of this process, each pinned to its own cores and with its own number of torch threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import Any

import torch

from tessera.launch.placement import Cpus, get_available_cpus, place_workers, read_numa_nodes

Task = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]


class DeviceThreads:
    """One thread for each device, which runs submitted functions in order.

    The threads are daemons, so an unclosed model does not keep the interpreter from exiting. Without `pin` they run on
    any core that the caller may use.
    """

    def __init__(self, devices: int, threads: int, *, pin: bool = True) -> None:
        before = torch.get_num_threads()
        self._tasks: list[SimpleQueue[Task | None]] = []
        self._threads = []
        cpus_here = get_available_cpus()
        places = place_workers(devices, threads, cpus_here, read_numa_nodes()) if pin else (cpus_here,) * devices
        for number, cpus in enumerate(places):
            tasks: SimpleQueue[Task | None] = SimpleQueue()
            thread = threading.Thread(target=_run_tasks, args=(tasks,), name=f"tessera-device-{number}", daemon=True)
            thread.start()
            self._tasks.append(tasks)
            self._threads.append(thread)
            self.submit(number, _configure_thread, cpus, threads).result()
        torch.set_num_threads(before)  # torch threads of threads that are started later

    def submit(self, device: int, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """Call a function on a device; the future holds its result or error."""
        future: Future[Any] = Future()
        self._tasks[device].put((future, function, args))
        return future

    def run_on_all(
        self, function: Callable[..., Any], args: Sequence[tuple[Any, ...]], abort: Callable[[], None]
    ) -> list[Future[Any]]:
        """Call a function on every device with separate arguments, and wait until all calls have ended.

        If the wait is interrupted (Ctrl-C), `abort` is called; it must cause the pending calls to end.
        """
        running: list[Future[Any]] = []
        try:
            for device, own in enumerate(args):
                running.append(self.submit(device, function, *own))
            wait(running)
        except BaseException:
            abort()
            wait(running)
            raise
        return running

    def close(self) -> None:
        """End the threads after their submitted functions."""
        for tasks in self._tasks:
            tasks.put(None)
        for thread in self._threads:
            thread.join()


def _run_tasks(tasks: SimpleQueue[Task | None]) -> None:
    while (task := tasks.get()) is not None:
        future, function, args = task
        try:
            future.set_result(function(*args))
        except BaseException as error:
            future.set_exception(error)
        del task, future, function, args  # free function, arguments and result while waiting for the next call


def _configure_thread(cpus: Cpus, threads: int) -> None:
    os.sched_setaffinity(0, cpus)  # applies to this thread and to threads that it starts
    torch.set_num_threads(threads)
    torch.get_num_threads()  # applies the number of threads now instead of at the first computation
