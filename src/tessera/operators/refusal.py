"""Turn library errors and allocations beyond the free memory into refused cases."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tessera.errors import Refused, TesseraError, get_first_line
from tessera.measure.memory_limits import get_available_bytes

DEVICE_ERRORS = ("OutOfMemoryError", "AcceleratorError")  # of torch's accelerators; `explain_failures` handles them
# parts of the error messages of libraries that do not raise MemoryError
OUT_OF_MEMORY_MESSAGES = ("allocate memory", "out of memory")


@contextmanager
def refusing_errors(what: str, got: object = None) -> Iterator[None]:
    """Context manager that converts any error of a library call into `Refused`.

    The size of outputs, gradients and workspaces is unknown before the call. Memory is therefore limited in the body:
    an allocation beyond the free memory fails, instead of invoking the kernel's out-of-memory killer.
    """
    free = get_available_bytes()
    try:
        with limit_memory(free):
            yield
    except TesseraError:
        raise
    except Exception as error:
        if type(error).__name__ in DEVICE_ERRORS:
            raise
        if isinstance(error, MemoryError) or any(words in str(error).lower() for words in OUT_OF_MEMORY_MESSAGES):
            what = f"{what}: it takes more memory than the {free / 2**30:.1f} GiB that are free"
        raise Refused(f"{what}: {get_first_line(error)}", got=got) from None


@contextmanager
def limit_memory(extra_bytes: int) -> Iterator[None]:
    """Limit the memory that this process may allocate to its current use plus `extra_bytes`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    bounds = [bound for bound in (_get_used_bytes() + extra_bytes, soft, hard) if bound != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(bounds), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _get_used_bytes() -> int:
    """Return the bytes of this process that the kernel counts towards the memory limit."""
    pages = int(Path("/proc/self/statm").read_text().split()[5])
    return pages * resource.getpagesize()
