"""A lease on a file: whoever wants to write to it or cut it off waits until nobody computes with its pages.

The pages of a mapped file vanish when it is cut off, and the system ends a process that touches them then. With a lease
(see fcntl(2)) it asks first: a signal comes to a thread here, which waits for the phase that is being computed with,
gives the lease back, and lets no other phase begin. Leases are not to be had for the files of other users, nor on every
file system, nor where somebody has the file open for writing already; the file is then looked at before every phase.
"""

from __future__ import annotations

import fcntl
import signal
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tessera.phased.store.weights_file import WeightsFile

ASKED = signal.SIGURG  # means nothing to a process that does not wait for it
SET_OWNER_EX, OWNER_IS_THREAD = 15, 0  # of fcntl(2): F_SETOWN_EX and F_OWNER_TID, which Python does not name


class Lease:
    """Holds a file that is mapped by way of a descriptor; `held` tells whether the system grants it."""

    def __init__(self, file: WeightsFile, fd: int) -> None:
        self._file, self._fd = file, fd
        self._changed = threading.Condition()
        self._users = 0
        self._over = False
        self.held = False
        settled = threading.Event()
        self._guard = threading.Thread(target=self._keep, args=(settled,), name="tessera-lease", daemon=True)
        self._guard.start()
        settled.wait()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Compute with the pages of the file in the block; raises if it has changed, or somebody is about to."""
        if not self.held:  # who holds it is asked; to look is a call into the system, which lets other threads go first
            self._file.check_unchanged()
        with self._changed:
            if self._over:
                raise self._file.changed()
            self._users += 1
        try:
            yield
        finally:
            with self._changed:
                self._users -= 1
                self._changed.notify_all()

    def close(self) -> None:
        """Give the lease back."""
        with self._changed:  # the guard has not passed here yet, or is over
            if self.held and not self._over:
                signal.pthread_kill(self._guard.ident or 0, ASKED)
        self._guard.join()

    def _keep(self, settled: threading.Event) -> None:
        """The life of the guard."""
        signal.pthread_sigmask(signal.SIG_BLOCK, [ASKED])
        try:
            owner = struct.pack("ii", OWNER_IS_THREAD, threading.get_native_id())
            fcntl.fcntl(self._fd, SET_OWNER_EX, owner)
            fcntl.fcntl(self._fd, fcntl.F_SETSIG, ASKED)
            fcntl.fcntl(self._fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            self.held = True
        except OSError:
            return
        finally:
            settled.set()
        signal.sigwait([ASKED])
        with self._changed:
            self._over = True
            self._changed.wait_for(lambda: self._users == 0)
        fcntl.fcntl(self._fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
