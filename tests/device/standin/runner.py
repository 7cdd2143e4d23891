"""Run tests where torch has the device for tests: in a forked child of one server process, never in pytest's process.

An accelerator changes the behaviour of torch in the whole process: the tests of other packages must not have one.
"""

from __future__ import annotations

import functools
import importlib
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from typing import Any, TypeVar

import pytest

from tests.device.standin.build import find_missing, make_environment

Test = TypeVar("Test", bound=Callable[..., Any])


def on_standin(test: Test) -> Test:
    """Run a test in a process with the device for tests. The device is not initialised when the test starts."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        if missing := find_missing():
            pytest.skip(missing)
        pipe, process = _start_server()
        try:
            pipe.send((test.__module__, test.__qualname__, args, kwargs))
            text = pipe.recv()
        except BaseException:  # also pytest's time limit: the next test must not receive the result of this one
            process.kill()
            stop_server()
            raise
        if text:
            pytest.fail(text, pytrace=False)

    return run  # type: ignore[return-value]


@functools.cache
def _start_server() -> tuple[Connection, subprocess.Popen[bytes]]:
    ours, theirs = Pipe()
    command = [sys.executable, "-c", f"from tests.device.standin.runner import serve; serve({theirs.fileno()})"]
    process = subprocess.Popen(command, env=make_environment(), pass_fds=[theirs.fileno()])
    theirs.close()

    return ours, process


def stop_server() -> None:
    """End the server, if it runs: tests of other packages check that pytest has no child process."""
    if _start_server.cache_info().currsize:
        pipe, process = _start_server()
        pipe.close()
        process.wait()
        _start_server.cache_clear()


def serve(file: int) -> None:
    """Run tests, each in a forked child, until pytest ends."""
    import torch  # imports the backend

    from tessera.launch.fresh import FreshProcess, ProcessDied

    assert torch.accelerator.current_accelerator() is not None, "torch did not find the device for tests"
    torch.ones(1, device="meta").add_(1) * 2  # imports the modules that infer shapes, before the children are forked
    pipe = Connection(os.dup(file))
    while True:
        try:
            module, name, args, kwargs = pipe.recv()
        except EOFError:
            return
        try:
            importlib.import_module(module)
            with FreshProcess() as child:
                text = child.call("tests.device.standin.runner:run_test", module, name, args, kwargs)
        except ProcessDied as error:
            text = f"{module}.{name}: {error}"
        except BaseException:
            text = traceback.format_exc()
        pipe.send(text)


def run_test(module: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Run one test and return its traceback; empty if it passed."""
    test = getattr(importlib.import_module(module), name).__wrapped__
    try:
        test(*args, **kwargs)
    except BaseException:
        return traceback.format_exc()
    return ""
