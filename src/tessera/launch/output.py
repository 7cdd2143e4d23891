"""Collect the standard output and error of workers: for error messages, and for --tag-output."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import struct
import sys
import threading
from collections import deque
from dataclasses import dataclass, field

MAX_KEPT_LINES = 60  # per rank
MAX_LAST_OUTPUT_CHARS = 400
MAX_LINE_BYTES = 1 << 16  # of an unfinished line, only the last bytes are kept
LAUNCHER_RANK = -1  # pseudo-rank of the launcher process (mpiexec)


def connect_output(path: str, rank: int) -> None:
    """Redirect the standard output and error of this worker and its native code to the launching process."""
    line = socket.socket(socket.AF_UNIX)
    line.connect(path)
    line.sendall(struct.pack("i", rank))
    sys.stdout.flush()
    sys.stderr.flush()
    for fd in (1, 2):
        os.dup2(line.fileno(), fd)
    line.close()


@dataclass
class _OutputStream:
    """The output stream of one process, and its last line so far, which is incomplete."""

    rank: int | None  # None until the worker has sent its rank
    pending: bytes = b""


@dataclass
class _OutputTail:
    """The last output lines of one rank, and whether its output has ended."""

    lines: deque[str] = field(default_factory=lambda: deque(maxlen=MAX_KEPT_LINES))
    ended: threading.Event = field(default_factory=threading.Event)


class OutputCollector:
    """A thread that reads the output of all workers, stores the last lines of each rank, and can print every line."""

    def __init__(self, path: str, size: int, show: bool) -> None:
        self._size, self._show = size, show
        self._tails = {rank: _OutputTail() for rank in (LAUNCHER_RANK, *range(size))}
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(size + 8)
        self._wake, wakes = socket.socketpair()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(wakes, selectors.EVENT_READ)
        self._wakes = wakes
        self._thread = threading.Thread(target=self._read_loop, name="worker output", daemon=True)
        self._thread.start()

    def open_pipe(self, rank: int) -> socket.socket:
        """Return a socket for the output of a process; the caller closes it after starting the process."""
        ours, theirs = socket.socketpair()
        self._selector.register(ours, selectors.EVENT_READ, _OutputStream(rank))
        return theirs

    def read_tail(self, rank: int, wait: float = 0.0) -> list[str]:
        """Return the last output lines of a rank, after waiting up to `wait` seconds for the end of its output.

        The wait is limited because children of a dead process may keep its output open.
        """
        self._tails[rank].ended.wait(wait)
        return list(self._tails[rank].lines)

    def close(self) -> None:
        self._wake.close()
        self._thread.join()

    def _read_loop(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._wakes:
                    self._drain()
                    return
                if key.fileobj is self._listener:
                    accepted, _ = self._listener.accept()
                    self._selector.register(accepted, selectors.EVENT_READ, _OutputStream(None))
                else:
                    assert isinstance(key.fileobj, socket.socket)
                    self._receive(key.fileobj, key.data)

    def _receive(self, source: socket.socket, stream: _OutputStream) -> None:
        with contextlib.suppress(ConnectionResetError):
            if data := source.recv(1 << 16):
                stream.pending += data
                self._split_lines(stream)
                return
        if stream.rank is not None:
            if stream.pending:
                self._keep_line(stream.rank, stream.pending)
            self._tails[stream.rank].ended.set()
        self._selector.unregister(source)
        source.close()

    def _split_lines(self, stream: _OutputStream) -> None:
        if stream.rank is None:
            if len(stream.pending) < 4:
                return
            (stream.rank,) = struct.unpack("i", stream.pending[:4])
            stream.pending = stream.pending[4:]
        *lines, rest = stream.pending.split(b"\n")
        stream.pending = rest[-MAX_LINE_BYTES:]  # a progress bar writes one endless line
        for line in lines:
            self._keep_line(stream.rank, line)

    def _keep_line(self, rank: int, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip("\r")
        self._tails[rank].lines.append(text)
        if self._show:
            source = "launcher" if rank == LAUNCHER_RANK else f"{rank}/{self._size}"
            try:
                sys.stderr.write(f"[{source}] {text}\n")
                sys.stderr.flush()
            except OSError:  # standard error is closed; the workers continue
                self._show = False

    def _drain(self) -> None:
        """Read the remaining output and close all streams."""
        for key in list(self._selector.get_map().values()):
            source = key.fileobj
            assert isinstance(source, socket.socket)
            if isinstance(key.data, _OutputStream):
                source.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    while source.fileno() >= 0:
                        self._receive(source, key.data)
            source.close()
        self._selector.close()


def format_last_output(lines: list[str]) -> str:
    """Format the last output lines of a dead process as one line; after a fatal error, the error and innermost frame.

    >>> format_last_output(["loading", "", "terminate called", "  what(): out of memory", ""])
    'loading | terminate called | what(): out of memory'
    >>> format_last_output(["Fatal Python error: Aborted", "", "Current thread 0x1 (most recent call first):",
    ...             '  File "conv.py", line 3 in run', '  File "serve.py", line 9 in main'])
    'Fatal Python error: Aborted | File "conv.py", line 3 in run'
    """
    written = [line.strip() for line in lines if line.strip()]
    fatal = next((i for i, line in enumerate(written) if line.startswith("Fatal Python error")), None)
    if fatal is None:
        chosen = written[-3:]
    else:
        frame = next((line for line in written[fatal:] if line.startswith("File ")), "")
        chosen = [*written[max(fatal - 2, 0) : fatal + 1], frame]
    text = " | ".join(filter(None, chosen))
    return text if len(text) <= MAX_LAST_OUTPUT_CHARS else "… " + text[-MAX_LAST_OUTPUT_CHARS:]
