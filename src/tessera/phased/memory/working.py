"""The weights of a phase as tensors to compute with: views of the buffer that it was read into, or widened from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from torch import Tensor

from tessera.phased.memory.arena import Arena, Region
from tessera.phased.memory.budget import ALIGNMENT, Division
from tessera.phased.memory.mapped import MappedReader
from tessera.phased.store.dtypes import computed_dtype
from tessera.phased.store.layout import Layout
from tessera.phased.store.reader import Reader
from tessera.phased.store.weights_file import StoredTensor

Weights = Mapping[str, Tensor]


def wide_bytes(tensors: Sequence[StoredTensor]) -> int:
    """Bytes that a phase takes in the form in which it is computed, 0 if that is the form in which it is stored."""
    if all(computed_dtype(tensor.dtype) == tensor.dtype for tensor in tensors):
        return 0
    return sum(_wide(tensor) + -_wide(tensor) % ALIGNMENT for tensor in tensors)


def _wide(tensor: StoredTensor) -> int:
    return tensor.nbytes // tensor.dtype.itemsize * computed_dtype(tensor.dtype).itemsize


class WorkingMemory:
    """The arena with its parts: buffers to stream through, an area to widen in, and phases that stay.

    `names` gives for every phase the stored names of its weights in the order of its layout. Of a file that is mapped,
    only what has to be widened takes memory here.
    """

    def __init__(
        self,
        division: Division,
        layouts: Sequence[Layout],
        names: Sequence[Sequence[str]],
        reader: Reader,
    ) -> None:
        self._layouts, self._names, self._kept, self._reader = layouts, names, division.resident, reader
        mapped = self._mapped = reader if isinstance(reader, MappedReader) else None
        self._wide = [wide_bytes([tensor for tensor, _ in layout.places]) for layout in layouts]
        own = [self._wide[phase] or (0 if mapped else layouts[phase].nbytes) for phase in division.resident]
        buffers = [0 if mapped else division.buffer] * division.buffers
        self._arena = Arena([*buffers, division.wide, *own])
        regions = iter(self._arena.regions)
        self.buffers = [next(regions) for _ in buffers]
        self._area = next(regions)
        self._own = {phase: next(regions) for phase in division.resident}
        if mapped is not None:
            self.buffers = [mapped.region() for _ in buffers]
            self._own |= {phase: mapped.region() for phase in division.resident if not self._wide[phase]}
        self._views: dict[tuple[int, int], Weights] = {}
        self._resident: dict[int, Weights] = {}

    def holds(self, tensor: Tensor) -> bool:
        """Whether a tensor lies where the next phase will be."""
        return self._arena.holds(tensor) or (self._mapped is not None and self._mapped.holds(tensor))

    def in_use(self) -> AbstractContextManager[None]:
        """Holds the weights of a phase while they are computed with."""
        return self._reader.in_use()

    @property
    def resident(self) -> tuple[int, ...]:
        """The phases that stay."""
        return self._kept

    def widens(self, phase: int) -> bool:
        """Whether a phase is computed with in another form than it is stored in."""
        return self._wide[phase] > 0

    def load_resident(self) -> None:
        """Load the phases that stay, each in the form in which it is computed with."""
        for phase, region in self._own.items():
            layout = self._layouts[phase]
            if self.widens(phase):
                self._reader.read(layout, self.buffers[0].memory)
                with self.in_use():
                    self._resident[phase] = self._widened(phase, self.buffers[0], region)
            else:
                self._reader.read(layout, region.memory)
                self._resident[phase] = self._stored(phase, region)

    def weights(self, phase: int, buffer: int | None) -> Weights:
        """The weights of a phase that stays (`buffer` None) or has been read into a buffer.

        Those that are stored in 16 bits are widened here, into the one area there is: the next phase will use it again.
        """
        if buffer is None:
            return self._resident[phase]
        if self.widens(phase):
            return self._widened(phase, self.buffers[buffer], self._area)
        if (phase, buffer) not in self._views:
            self._views[phase, buffer] = self._stored(phase, self.buffers[buffer])
        return self._views[phase, buffer]

    def _stored(self, phase: int, region: Region) -> Weights:
        places = self._layouts[phase].places
        views = [region.view(at, tensor.dtype, tensor.shape) for tensor, at in places]
        return dict(zip(self._names[phase], views, strict=True))

    def _widened(self, phase: int, source: Region, into: Region) -> Weights:
        found = {}
        at = 0
        for name, (tensor, place) in zip(self._names[phase], self._layouts[phase].places, strict=True):
            wide = into.view(at, computed_dtype(tensor.dtype), tensor.shape)
            found[name] = wide.copy_(source.view(place, tensor.dtype, tensor.shape))
            at += _wide(tensor) + -_wide(tensor) % ALIGNMENT
        return found
