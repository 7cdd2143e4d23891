"""The memory guard: compares the memory of the whole process, as the kernel reports it, with a limit."""

from __future__ import annotations

from tessera.errors import TesseraError
from tessera.measure.memory import read_process_memory, reset_peak_memory, trim_allocator
from tessera.report.figures import format_bytes

MARGIN_BYTES = 12 << 20  # kept free: the kernel counts pages with a delay, and libraries allocate memory of their own


class MemoryGuard:
    """Limit on the resident memory of this process: interpreter, libraries, weights, activations and other data.

    Peak memory that was reached before the guard was created is ignored.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        memory = read_process_memory()
        if memory.peak > limit:
            trim_allocator()
            reset_peak_memory()
            memory = read_process_memory()
        self._base = memory.resident
        if self._base + MARGIN_BYTES >= limit:
            raise TesseraError(
                "the process already uses the memory that `memory_limit` allows",
                got=f"{format_bytes(limit)}, with {format_bytes(self._base)} in use",
                do="raise memory_limit, or delete the original model and other data first",
            )

    @property
    def first_budget(self) -> int:
        """Budget of weights before the first pass: half of the memory that is left; the rest is for activations."""
        return (self.limit - self._base - MARGIN_BYTES) // 2

    @property
    def free_bytes(self) -> int:
        """Bytes that the process can still use."""
        return self.limit - MARGIN_BYTES - read_process_memory().resident

    def compute_budget(self, weights: int) -> int:
        """Return the budget that the peak so far leaves; `weights` bytes of weights were in memory at the peak."""
        return self.limit - MARGIN_BYTES - (read_process_memory().peak - weights)

    def check(self) -> None:
        """Raise an error if the process exceeded the limit. The error is raised once: the peak is reset."""
        memory = read_process_memory()
        if memory.peak > self.limit:
            trim_allocator()
            reset_peak_memory()
            raise TesseraError(
                "the process exceeded its memory limit: activations and other data need more memory than the "
                "weights leave free",
                got=f"a peak of {format_bytes(memory.peak)}",
                allowed=format_bytes(self.limit),
                do="raise memory_limit, or use smaller inputs",
            )

    def has_space(self, nbytes: int) -> bool:
        """Return whether `nbytes` more fit below the limit."""
        return nbytes <= self.free_bytes

    def build_error(self, nbytes: int) -> TesseraError:
        """Return the error for weights that do not fit any more."""
        resident = read_process_memory().resident
        return TesseraError(
            f"the memory limit leaves too little for the next {format_bytes(nbytes)} of weights",
            got=f"{format_bytes(self.limit)}, with {format_bytes(resident)} in use",
            allowed=f"{format_bytes(resident + nbytes + MARGIN_BYTES)} or more",
            do="raise memory_limit, or use smaller inputs",
        )

    def describe(self) -> str:
        """Return the peak memory of the process and its limit as text."""
        return f"peak memory of the process: {format_bytes(read_process_memory().peak)} of {format_bytes(self.limit)}"
