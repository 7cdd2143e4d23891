"""What workers write to their standard output and error: kept as last words, shown with the rank."""

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

KEPT_LINES = 60
LONGEST = 400
LONGEST_LINE = 1 << 16  # bytes
LAUNCHER = -1  # the stream of mpiexec or torch's agent


def connect_output(path: str, rank: int) -> None:
    """In a worker: send all that it writes, native code included, to the launching process."""
    line = socket.socket(socket.AF_UNIX)
    line.connect(path)
    line.sendall(struct.pack("i", rank))
    sys.stdout.flush()
    sys.stderr.flush()
    for fd in (1, 2):
        os.dup2(line.fileno(), fd)
    line.close()


@dataclass
class _Stream:
    rank: int | None  # None until it has said who it is
    head: bytes = b""


@dataclass
class _Tail:
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))
    ended: threading.Event = field(default_factory=threading.Event)


class Output:
    """A thread that sleeps until a worker writes; keeps the tail of each rank, and can show every line."""

    def __init__(self, path: str, size: int, show: bool) -> None:
        self._size, self._show = size, show
        self._tails = {rank: _Tail() for rank in (LAUNCHER, *range(size))}
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(size + 8)
        self._wake, wakes = socket.socketpair()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(wakes, selectors.EVENT_READ)
        self._wakes = wakes
        self._thread = threading.Thread(target=self._read, name="worker output", daemon=True)
        self._thread.start()

    def pipe_for(self, rank: int) -> socket.socket:
        """A socket for a process to write to; close it once the process has it."""
        ours, theirs = socket.socketpair()
        self._selector.register(ours, selectors.EVENT_READ, _Stream(rank))
        return theirs

    def tail(self, rank: int, wait: float = 0.0) -> list[str]:
        """The last lines of a rank; of a dead one, wait for the rest, which its children may hold open."""
        self._tails[rank].ended.wait(wait)
        return list(self._tails[rank].lines)

    def close(self) -> None:
        self._wake.close()
        self._thread.join()

    def _read(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._wakes:
                    self._end()
                    return
                if key.fileobj is self._listener:
                    accepted, _ = self._listener.accept()
                    self._selector.register(accepted, selectors.EVENT_READ, _Stream(None))
                else:
                    assert isinstance(key.fileobj, socket.socket)
                    self._take(key.fileobj, key.data)

    def _take(self, source: socket.socket, stream: _Stream) -> None:
        with contextlib.suppress(ConnectionResetError):
            if data := source.recv(1 << 16):
                stream.head += data
                self._split(stream)
                return
        if stream.rank is not None:
            if stream.head:
                self._keep(stream.rank, stream.head)
            self._tails[stream.rank].ended.set()
        self._selector.unregister(source)
        source.close()

    def _split(self, stream: _Stream) -> None:
        if stream.rank is None:
            if len(stream.head) < 4:
                return
            (stream.rank,) = struct.unpack("i", stream.head[:4])
            stream.head = stream.head[4:]
        *lines, rest = stream.head.split(b"\n")
        stream.head = rest[-LONGEST_LINE:]  # a progress bar writes no end of line
        for line in lines:
            self._keep(stream.rank, line)

    def _keep(self, rank: int, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip("\r")
        self._tails[rank].lines.append(text)
        if self._show:
            who = "launcher" if rank == LAUNCHER else f"{rank}/{self._size}"
            try:
                sys.stderr.write(f"[{who}] {text}\n")
                sys.stderr.flush()
            except OSError:  # nobody reads on: the workers must not wait for that
                self._show = False

    def _end(self) -> None:
        """Take what is there already, and let go."""
        for key in list(self._selector.get_map().values()):
            source = key.fileobj
            assert isinstance(source, socket.socket)
            if isinstance(key.data, _Stream):
                source.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    while source.fileno() >= 0:
                        self._take(source, key.data)
            source.close()
        self._selector.close()


def last_words(lines: list[str]) -> str:
    """The end of what a dead process wrote, in one line; of a crash, the error and its innermost frame.

    >>> last_words(["loading", "", "terminate called", "  what(): out of memory", ""])
    'loading | terminate called | what(): out of memory'
    >>> last_words(["Fatal Python error: Aborted", "", "Current thread 0x1 (most recent call first):",
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
    return text if len(text) <= LONGEST else "… " + text[-LONGEST:]
