"""End workers when the launching process ends, even if it is killed.

The launching process listens on a Unix socket, but never accepts or writes. A worker connects to it and asks the kernel
for a signal when the socket changes. The only possible change is that the listener is gone; the kernel then signals the
whole process group of the worker. Unlike PR_SET_PDEATHSIG, this reaches ranks whose parent is `mpiexec` or torch's
agent, does not depend on the thread that started the process, and includes the worker's own children. Unlike a watching
thread, it works while the interpreter is busy.

`python -m tessera.launch.lifeline SOCKET COMMAND…` runs any program so that it ends with the launching process.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys


def open_lifeline(path: str, workers: int) -> socket.socket:
    """Open the listening socket in the launching process. When it closes, all attached process groups are signalled."""
    line = socket.socket(socket.AF_UNIX)
    line.bind(path)
    line.listen(2 * workers + 8)
    return line


def attach_to_lifeline(path: str, end_signal: signal.Signals) -> int:
    """Make this process the leader of a process group that gets `end_signal` when the listener closes."""
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    line = socket.socket(socket.AF_UNIX)
    line.connect(path)
    fd = line.detach()
    fcntl.fcntl(fd, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(fd, fcntl.F_SETSIG, end_signal)
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
    return fd


def main(argv: list[str]) -> None:
    """Run a command that ends with the launching process."""
    path, *command = argv
    # SIGTERM, not SIGKILL: mpiexec then removes the shared memory of its ranks.
    os.set_inheritable(attach_to_lifeline(path, signal.SIGTERM), True)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
