"""Trying what inputs may not allow: what a library refuses is refused here, and so is memory that is not there."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tessera.errors import Refused, TesseraError, first_line
from tessera.measure.room import available

NO_MEMORY = ("allocate memory", "out of memory")  # how libraries say so that do not raise MemoryError


@contextmanager
def attempting(what: str, got: object = None) -> Iterator[None]:
    """Turn what a library says of inputs that it does not take into a refusal.

    Outputs, gradients and whatever a kernel takes to work in are known only when it asks for them. It may have what is
    free: more is denied at once, before a page of it is touched and the kernel ends processes to find some.
    """
    free = available()
    try:
        with limited(free):
            yield
    except TesseraError:
        raise
    except Exception as error:
        if isinstance(error, MemoryError) or any(words in str(error).lower() for words in NO_MEMORY):
            what = f"{what}: it takes more memory than the {free / 2**30:.1f} GiB that are free"
        raise Refused(f"{what}: {first_line(error)}", got=got) from None


@contextmanager
def limited(more: int) -> Iterator[None]:
    """Let this process take so many bytes and no more: who asks for them is told so."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    bounds = [bound for bound in (_held() + more, soft, hard) if bound != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(bounds), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _held() -> int:
    """Bytes that this process holds already, as the kernel counts them against the limit."""
    pages = int(Path("/proc/self/statm").read_text().split()[5])
    return pages * resource.getpagesize()
