"""Fresh processes without the start-up time of a new interpreter.

Times differ by one or two per cent between processes, because buffer addresses differ and stay constant for the life of
a process. Several processes are therefore sampled. Starting an interpreter that imports torch takes seconds; forking a
worker that has imported all modules, but computed nothing, takes milliseconds. The child allocates its buffers in new
memory, shifted by a random offset.
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

PR_SET_PDEATHSIG = 1  # constant of prctl(2): signal this process when its parent ends
MAX_ADDRESS_OFFSET_BYTES = 1 << 24
MAX_MESSAGE_CHARS = 300


class ProcessDied(BenchmarkFailed):
    """The error for a forked process that ended before it returned a result."""


class FreshProcess:
    """A child process forked from the current process. It runs one function at a time and keeps state between calls."""

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
        """Call `package.module:function` in the child and return the result.

        An exception of the function is raised in the parent, `ProcessDied` if the child ends.
        """
        try:
            self._pipe.send((target, args))
            ok, value = self._pipe.recv()
        except (EOFError, OSError):
            raise ProcessDied(f"its process {self._reap()}") from None
        if not ok:
            raise value
        return value

    def close(self) -> None:
        """Kill the child."""
        self._pipe.close()
        if self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)
            self._reap()

    def _reap(self) -> str:
        """Wait for the child to end, and return a description of its exit status."""
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


def load_object(target: str) -> Any:
    """Import and return the object with the path `package.module:name`."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def _serve(pipe: Connection) -> None:
    """Run functions in the child until the pipe closes. Never return into the parent's code."""
    try:
        libc = ctypes.CDLL(None)
        if hasattr(libc, "prctl"):  # Linux only
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        random.seed()
        gc.freeze()  # otherwise a collection would write to every page of the imported modules, and so copy it
        # Shift the addresses of later allocations. The block is never written to, so it takes no physical memory.
        libc.malloc(random.randrange(1 << 20, MAX_ADDRESS_OFFSET_BYTES, 64))
        while True:
            try:
                target, args = pipe.recv()
            except EOFError:
                break
            pipe.send(_call_target(target, args))
    finally:
        os._exit(0)


def _call_target(target: str, args: tuple[Any, ...]) -> tuple[bool, Any]:
    try:
        reply = (True, load_object(target)(*args))
        pickle.dumps(reply)
        return reply
    except TesseraError as error:
        return False, error
    except BaseException as error:
        return False, BenchmarkFailed(f"{target} raised {format_error_line(error)}")


def format_error_line(error: BaseException) -> str:
    """Format an error in one line: type, message and the innermost frame.

    >>> format_error_line(ValueError("first\\nsecond"))
    'ValueError: first second'
    """
    message = " ".join(str(error).split())
    if len(message) > MAX_MESSAGE_CHARS:
        message = message[:MAX_MESSAGE_CHARS] + " …"
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name})" if frames else ""
    return f"{type(error).__name__}: {message}{where}" if message else f"{type(error).__name__}{where}"
