"""Turns of the threads that call one model: one pass runs at a time, except a pass that another pass waits for.

A network may start a thread, or use a pool of threads, that calls the model again, and wait for it. This call must not
wait for the end of the pass. It is recognized by the threads of the pass: all of them sleep, and use no CPU time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

CHECK_SECONDS = 0.25  # between two checks of the threads of a pass that another thread waits for


class PassTurn:
    """A lock of the threads that call a model, which gives way to a call that the pass itself waits for.

    `list_threads` returns further threads of the pass that runs now; None if the pass waits for weights.
    """

    def __init__(self, list_threads: Callable[[], Sequence[threading.Thread] | None]) -> None:
        self._list_threads = list_threads
        self._lock = threading.RLock()
        self._own = threading.local()
        self._holder: threading.Thread | None = None

    @contextmanager
    def take(self) -> Iterator[bool]:
        """Wait for the turn of this thread, and yield True; yield False if the pass that has the turn waits, too."""
        if getattr(self._own, "beside", False) or not self._wait():
            before, self._own.beside = getattr(self._own, "beside", False), True
            try:
                yield False
            finally:
                self._own.beside = before
            return
        outer, self._holder = self._holder, threading.current_thread()
        try:
            yield True
        finally:
            self._holder = outer
            self._lock.release()

    def _wait(self) -> bool:
        if self._lock.acquire(blocking=False):
            return True
        before = None
        while not self._lock.acquire(timeout=CHECK_SECONDS):
            threads = self._list_threads()
            seen = None if threads is None else [_read_activity(thread) for thread in (self._holder, *threads)]
            if seen is not None and seen == before and all(activity is not None for activity in seen):
                return False
            before = seen
        return True


def _read_activity(thread: threading.Thread | None) -> tuple[str, str] | None:
    """Return the CPU times of a sleeping thread; None if it runs, or if the system does not report them."""
    if thread is None or not thread.is_alive():
        return None
    try:
        text = Path(f"/proc/self/task/{thread.native_id}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name of the thread may contain blanks
    return (fields[11], fields[12]) if fields[0] == "S" else None
