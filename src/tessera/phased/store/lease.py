"""A lease on a mapped file, which delays other programs that write to or truncate it until no phase uses its pages.

If another program truncates a mapped file, a process that accesses the lost pages receives SIGBUS. With a lease (see
fcntl(2)) the kernel first sends a signal to a guard thread here. The guard waits until no phase uses the pages,
releases the lease, and prevents further phases from starting. The kernel grants no lease on files of other users, on
some file systems, and on files that are open for writing; then the file is checked before every phase instead.
"""

from __future__ import annotations

import fcntl
import signal
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tessera.phased.store.weights_file import WeightsFile

LEASE_BREAK_SIGNAL = signal.SIGURG  # a signal that processes ignore by default
F_SETOWN_EX, F_OWNER_TID = 15, 0  # constants of fcntl(2) that Python does not define


class FileLease:
    """A lease on the file of a descriptor; `held` is whether the kernel granted it."""

    def __init__(self, file: WeightsFile, fd: int) -> None:
        self._file, self._fd = file, fd
        self._changed = threading.Condition()
        self._users = 0
        self._over = False
        self.held = False
        decided = threading.Event()
        self._guard = threading.Thread(target=self._guard_file, args=(decided,), name="tessera-lease", daemon=True)
        self._guard.start()
        decided.wait()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Return a context in which the file's pages may be used; raise an error if the file changed or is changing."""
        if not self.held:  # with a lease, the check (a system call that releases the interpreter lock) is unneeded
            self._file.check_unchanged()
        with self._changed:
            if self._over:
                raise self._file.build_changed_error()
            self._users += 1
        try:
            yield
        finally:
            with self._changed:
                self._users -= 1
                self._changed.notify_all()

    def close(self) -> None:
        """Release the lease."""
        with self._changed:  # the guard either waits for the signal or has ended
            if self.held and not self._over:
                signal.pthread_kill(self._guard.ident or 0, LEASE_BREAK_SIGNAL)
        self._guard.join()

    def _guard_file(self, decided: threading.Event) -> None:
        """Take the lease, wait for the signal, and release the lease when no phase uses the pages."""
        signal.pthread_sigmask(signal.SIG_BLOCK, [LEASE_BREAK_SIGNAL])
        try:
            owner = struct.pack("ii", F_OWNER_TID, threading.get_native_id())
            fcntl.fcntl(self._fd, F_SETOWN_EX, owner)
            fcntl.fcntl(self._fd, fcntl.F_SETSIG, LEASE_BREAK_SIGNAL)
            fcntl.fcntl(self._fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            self.held = True
        except OSError:
            return
        finally:
            decided.set()
        signal.sigwait([LEASE_BREAK_SIGNAL])
        with self._changed:
            self._over = True
            self._changed.wait_for(lambda: self._users == 0)
        fcntl.fcntl(self._fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
