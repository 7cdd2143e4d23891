"""Fresh processes without the price of a fresh interpreter.

Between processes the launch is the sampling unit: where the pages of a buffer happen to lie decides a per cent or
two, and stays so for the life of the process. Starting an interpreter with torch takes seconds, so a worker that
has imported everything and computed nothing forks: the child has new memory for everything that it touches, moved
by a random offset, and costs milliseconds.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import pickle
import random
import signal
import sys
import traceback
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

from tessera.errors import BenchmarkFailed, TesseraError

PR_SET_PDEATHSIG = 1
MAX_OFFSET = 1 << 24
LONGEST_MESSAGE = 300


class Died(BenchmarkFailed):
    """The process that was forked for a case ended in the middle of it."""


class FreshProcess:
    """A child forked from this process that runs functions for it, one at a time, and keeps its state between them."""

    def __init__(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self._pipe, theirs = Pipe()
        self._pid: int | None = os.fork()
        if self._pid == 0:
            self._pipe.close()
            _serve(theirs)
        theirs.close()

    def call(self, target: str, *args: Any) -> Any:
        """Run `package.module:function` in the child; its error is raised here, its death is a BenchmarkFailed."""
        try:
            self._pipe.send((target, args))
            ok, value = self._pipe.recv()
        except (EOFError, OSError):
            raise Died(f"its process {self._reap()}") from None
        if not ok:
            raise value
        return value

    def close(self) -> None:
        """End the child, whatever it does."""
        self._pipe.close()
        if self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)
            self._reap()

    def _reap(self) -> str:
        """Collect the child and say how it ended."""
        assert self._pid is not None
        _, status = os.waitpid(self._pid, 0)
        self._pid = None
        if os.WIFSIGNALED(status):
            return f"was killed by {signal.Signals(os.WTERMSIG(status)).name}"
        return f"ended with exit code {os.WEXITSTATUS(status)}"

    def __enter__(self) -> FreshProcess:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def resolve(target: str) -> Any:
    """The function behind `package.module:function`."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def _serve(pipe: Connection) -> None:
    """The child's life: run what comes until the pipe closes. Never returns into the parent's code."""
    try:
        libc = ctypes.CDLL(None)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        random.seed()
        gc.freeze()  # what was imported is never looked through: that would copy every page of it
        # never touched, so it costs only addresses: what is allocated from now on lies elsewhere than in the parent
        libc.malloc(random.randrange(1 << 20, MAX_OFFSET, 64))
        while True:
            try:
                target, args = pipe.recv()
            except EOFError:
                break
            pipe.send(_answer(target, args))
    finally:
        os._exit(0)


def _answer(target: str, args: tuple[Any, ...]) -> tuple[bool, Any]:
    try:
        answer = (True, resolve(target)(*args))
        pickle.dumps(answer)
        return answer
    except TesseraError as error:
        return False, error
    except BaseException as error:
        return False, BenchmarkFailed(f"{target} raised {in_one_line(error)}")


def in_one_line(error: BaseException) -> str:
    """Type, message and the innermost frame.

    >>> in_one_line(ValueError("first\\nsecond"))
    'ValueError: first second'
    """
    message = " ".join(str(error).split())
    if len(message) > LONGEST_MESSAGE:
        message = message[:LONGEST_MESSAGE] + " …"
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name})" if frames else ""
    return f"{type(error).__name__}: {message}{where}" if message else f"{type(error).__name__}{where}"
