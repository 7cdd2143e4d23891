"""The standard streams and signals of a command: closed and ASCII-only streams, control characters, SIGTERM, SIGHUP."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TextIO

from tessera.errors import escape_controls

MAX_MESSAGE_LENGTH = 4000


class Terminated(KeyboardInterrupt):
    """The interruption of a command by SIGTERM or SIGHUP, which ends it like Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def print_message(text: str) -> None:
    """Print one line on standard error; control characters are escaped, and a closed stream is ignored."""
    if len(text) > MAX_MESSAGE_LENGTH:
        text = f"{text[:MAX_MESSAGE_LENGTH]} …"
    with suppress(OSError, ValueError):
        print(f"tessera: {escape_controls(text)}", file=sys.stderr, flush=True)


@contextmanager
def prepare_streams() -> Iterator[None]:
    """Make printing safe: a closed stream discards text, unencodable characters are escaped, warnings are one line."""
    for name, descriptor in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None or _is_closed(stream, descriptor):
            # The descriptor is taken too, so that no file that is opened later becomes standard output.
            null = os.open(os.devnull, os.O_RDWR)
            if null != descriptor:
                os.dup2(null, descriptor)
                os.close(null)
            setattr(sys, name, os.fdopen(descriptor, "r" if descriptor == 0 else "w", closefd=False))
        elif isinstance(stream, io.TextIOWrapper) and descriptor:
            stream.reconfigure(errors="backslashreplace")
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        yield


def _is_closed(stream: Any, descriptor: int) -> bool:
    try:
        if stream.fileno() == descriptor:
            os.fstat(descriptor)
    except (AttributeError, ValueError, io.UnsupportedOperation):  # a stream of a test or a notebook
        return False
    except OSError:
        return True
    return False


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    if category.__module__.startswith("tessera."):
        print_message(f"warning: {message}")
    else:
        with suppress(OSError, ValueError):
            print(warnings.formatwarning(message, category, filename, lineno), end="", file=sys.stderr)


def discard_output() -> None:
    """Discard all further text on standard output, after its reader has closed it or the disk is full."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


@contextmanager
def end_by_signals() -> Iterator[None]:
    """Raise `Terminated` on SIGTERM and SIGHUP; a second signal ends the process at once.

    A signal that is ignored, as SIGHUP by `nohup`, stays ignored. Forked children have the default action.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner = os.getpid()

    def handle(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        if os.getpid() != owner:  # a forked child, which has nothing to clean up
            os.kill(os.getpid(), number)
            return
        raise Terminated(number)

    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) == signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
