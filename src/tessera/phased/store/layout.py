"""Where the weights of a phase lie in a file, and where they come to lie in a working buffer.

A buffer repeats the file page by page: what lies in one stretch there is read in one go, straight to its place, and
page-aligned on both sides, as reads past the page cache have to be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessera.phased.store.weights_file import PAGE, StoredTensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Pages of the file and where they go: `start` and `stop` in the file, `at` in the buffer; all are page-aligned.

    The last page of a file may be cut off: `needed` is where the last tensor in the run ends.
    """

    start: int
    stop: int
    at: int
    needed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The runs of a phase, its tensors with their places in the buffer, and the bytes of a buffer that takes them."""

    runs: tuple[Run, ...]
    places: tuple[tuple[StoredTensor, int], ...]
    nbytes: int

    @property
    def stored_bytes(self) -> int:
        return sum(tensor.nbytes for tensor, _ in self.places)


def layout_of(tensors: Sequence[StoredTensor], *, mapped: bool = False) -> Layout:
    """Lay out the tensors of a phase: run after run in a buffer, or as they lie in the file where that is mapped."""
    runs: list[Run] = []
    places: dict[str, tuple[StoredTensor, int]] = {}
    at = 0
    for tensor in sorted(tensors, key=lambda t: (t.start, t.stop)):
        last = runs[-1] if runs else None
        if last is not None and tensor.start <= last.stop:
            stop = max(last.stop, page_up(tensor.stop))
            needed = max(last.needed, tensor.stop)
            runs[-1] = Run(start=last.start, stop=stop, at=last.at, needed=needed)
        else:
            start = tensor.start - tensor.start % PAGE
            runs.append(Run(start=start, stop=page_up(tensor.stop), at=start if mapped else at, needed=tensor.stop))
        at = runs[-1].at + runs[-1].stop - runs[-1].start
        places[tensor.name] = (tensor, runs[-1].at + tensor.start - runs[-1].start)
    nbytes = sum(run.stop - run.start for run in runs)
    return Layout(runs=tuple(runs), places=tuple(places[tensor.name] for tensor in tensors), nbytes=nbytes)


def page_up(count: int) -> int:
    """The next multiple of a page.

    >>> page_up(0), page_up(1), page_up(4096)
    (0, 4096, 4096)
    """
    return count + -count % PAGE
