"""Layout of a phase: offsets of its weights in a file, and in a buffer of working memory.

A buffer has the page layout of the file. Consecutive pages of the file are read directly into the buffer, as one run.
File offset, buffer offset and length are page-aligned, as direct I/O requires.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessera.phased.store.weights_file import PAGE_BYTES, StoredTensor


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRun:
    """Consecutive pages: byte offsets `start` and `stop` in the file and `at` in the buffer, all page-aligned.

    `needed` is the end of the last tensor in the run, because the last page of a file may be incomplete.
    """

    start: int
    stop: int
    at: int
    needed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseLayout:
    """The page runs of a phase, its tensors with their offsets in the buffer, and the size of that buffer."""

    runs: tuple[PageRun, ...]
    places: tuple[tuple[StoredTensor, int], ...]
    nbytes: int

    @property
    def stored_bytes(self) -> int:
        return sum(tensor.nbytes for tensor, _ in self.places)


def lay_out_phase(tensors: Sequence[StoredTensor], *, mapped: bool = False) -> PhaseLayout:
    """Lay out the tensors of a phase: packed page runs in a buffer, or with `mapped` at their offsets in the file."""
    runs: list[PageRun] = []
    places: dict[str, tuple[StoredTensor, int]] = {}
    at = 0
    for tensor in sorted(tensors, key=lambda t: (t.start, t.stop)):
        last = runs[-1] if runs else None
        if last is not None and tensor.start <= last.stop:
            stop = max(last.stop, round_up_to_page(tensor.stop))
            needed = max(last.needed, tensor.stop)
            runs[-1] = PageRun(start=last.start, stop=stop, at=last.at, needed=needed)
        else:
            start = tensor.start - tensor.start % PAGE_BYTES
            runs.append(
                PageRun(start=start, stop=round_up_to_page(tensor.stop), at=start if mapped else at, needed=tensor.stop)
            )
        at = runs[-1].at + runs[-1].stop - runs[-1].start
        places[tensor.name] = (tensor, runs[-1].at + tensor.start - runs[-1].start)
    nbytes = sum(run.stop - run.start for run in runs)
    return PhaseLayout(runs=tuple(runs), places=tuple(places[tensor.name] for tensor in tensors), nbytes=nbytes)


def round_up_to_page(count: int) -> int:
    """Round a number of bytes up to a multiple of the page size.

    >>> round_up_to_page(0), round_up_to_page(1), round_up_to_page(4096)
    (0, 4096, 4096)
    """
    return count + -count % PAGE_BYTES
