"""Errors of a device as errors for users: full memory, and a device that was lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tessera.errors import BenchmarkFailed, Refused, get_first_line


@contextmanager
def explain_failures(what: str, device: str) -> Iterator[None]:
    """Context manager that raises `Refused` if `what` does not fit into the memory of a device.

    An error of the device itself raises `BenchmarkFailed`: the device cannot be used any more in this process.
    """
    import torch

    try:
        yield
    except torch.OutOfMemoryError as error:
        raise Refused(f"{what} does not fit into the memory of {device}: {get_first_line(error)}") from None
    except torch.AcceleratorError as error:
        raise BenchmarkFailed(f"{device} failed while {what} ran: {get_first_line(error)}") from None
