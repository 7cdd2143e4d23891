"""One worker in the calling process: nothing is started, pinned or killed."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from tessera.errors import TimedOut
from tessera.launch.config import LaunchConfig
from tessera.launch.worker import Worker, perform
from tessera.measure.sync import ALONE


class Inline:
    """Runs worker functions here, with the threads asked for; allocator and cores stay as they are."""

    alive = True

    def __init__(self, config: LaunchConfig) -> None:
        self._worker = Worker(rank=0, size=1, spawn="inline", cpus=(), threads=config.threads, sync=ALONE)

    def run(self, target: str, args: tuple[Any, ...], limit: float | None) -> list[Any]:
        with _torch_threads_kept(), _alarm(limit):
            reply = perform(self._worker, target, args)
        if reply.error is not None:
            raise reply.error
        return [reply.value]

    def close(self, *, kill: bool) -> None:
        return None


@contextlib.contextmanager
def _torch_threads_kept() -> Iterator[None]:
    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch is not None else None
    try:
        yield
    finally:
        if torch is not None:
            torch.set_num_threads(before)


@contextlib.contextmanager
def _alarm(limit: float | None) -> Iterator[None]:
    """Raise TimedOut from within the function; a call into native code has to return first.

    Python runs signal handlers in the main thread only, so a limit asked for elsewhere is not kept.
    """
    if limit is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(number: int, frame: FrameType | None) -> None:
        raise TimedOut(f"no answer within the time limit of {limit:g} s from the inline worker")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
