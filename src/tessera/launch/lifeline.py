"""A process that ends by itself when the process that launched it is gone, whatever ended that one.

The launching process listens on a Unix socket that nobody ever accepts from or writes to. A worker connects
to it and asks the kernel for a signal when that socket changes; the only change there can be is that the
listener is gone. The kernel then signals the worker's whole process group. Unlike PR_SET_PDEATHSIG this
reaches ranks whose parent is `mpiexec` or torch's agent, does not depend on which thread started the
process, and takes the worker's own children along; unlike a watching thread it needs no interpreter that is
free to run.

`python -m tessera.launch.lifeline SOCKET COMMAND…` puts any program on such a line.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys


def listen(path: str, workers: int) -> socket.socket:
    """The launching end; closing it, or dying, ends all that hold on to it."""
    line = socket.socket(socket.AF_UNIX)
    line.bind(path)
    line.listen(2 * workers + 8)
    return line


def hold_on(path: str, ending: signal.Signals) -> int:
    """Make this process lead a group that gets `ending` when the listener is gone; gives the socket."""
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    line = socket.socket(socket.AF_UNIX)
    line.connect(path)
    fd = line.detach()
    fcntl.fcntl(fd, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(fd, fcntl.F_SETSIG, ending)
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
    return fd


def main(argv: list[str]) -> None:
    path, *command = argv
    # SIGTERM, not SIGKILL: mpiexec then removes the shared memory of its ranks.
    os.set_inheritable(hold_on(path, signal.SIGTERM), True)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
