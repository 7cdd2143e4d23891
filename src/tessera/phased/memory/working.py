"""Working memory: the weights of a phase as tensors, which are views of a buffer or widened copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from torch import Tensor

from tessera.phased.memory.arena import MemoryRegion, WorkingArena
from tessera.phased.memory.budget import ALIGNMENT_BYTES, MemoryDivision
from tessera.phased.memory.mapped import MappedReader
from tessera.phased.store.layout import PhaseLayout
from tessera.phased.store.reader import PhaseReader
from tessera.phased.store.weights_file import StoredTensor, get_compute_dtype

Weights = Mapping[str, Tensor]


def compute_wide_bytes(tensors: Sequence[StoredTensor]) -> int:
    """Return the bytes of a phase in its compute dtype; 0 if it is computed in its stored dtype."""
    if all(get_compute_dtype(tensor.dtype) == tensor.dtype for tensor in tensors):
        return 0
    return sum(_get_wide_bytes(tensor) + -_get_wide_bytes(tensor) % ALIGNMENT_BYTES for tensor in tensors)


def _get_wide_bytes(tensor: StoredTensor) -> int:
    return tensor.nbytes // tensor.dtype.itemsize * get_compute_dtype(tensor.dtype).itemsize


class WorkingMemory:
    """The memory for weights: stream buffers, an area for weights widened to float32, and resident phases.

    `names` holds the stored names of every phase's weights in the order of its layout. If the file is mapped, only
    widened weights take memory here.
    """

    def __init__(
        self,
        division: MemoryDivision,
        layouts: Sequence[PhaseLayout],
        names: Sequence[Sequence[str]],
        reader: PhaseReader,
    ) -> None:
        self._layouts, self._names, self._kept, self._reader = layouts, names, division.resident, reader
        mapped = self._mapped = reader if isinstance(reader, MappedReader) else None
        self._wide = [compute_wide_bytes([tensor for tensor, _ in layout.places]) for layout in layouts]
        resident_sizes = [self._wide[phase] or (0 if mapped else layouts[phase].nbytes) for phase in division.resident]
        buffers = [0 if mapped else division.buffer] * division.buffers
        self._arena = WorkingArena([*buffers, division.wide, *resident_sizes])
        regions = iter(self._arena.regions)
        self.buffers = [next(regions) for _ in buffers]
        self._area = next(regions)
        self._own = {phase: next(regions) for phase in division.resident}
        if mapped is not None:
            self.buffers = [mapped.get_region() for _ in buffers]
            self._own |= {phase: mapped.get_region() for phase in division.resident if not self._wide[phase]}
        self._views: dict[tuple[int, int], Weights] = {}
        self._resident: dict[int, Weights] = {}

    def contains(self, tensor: Tensor) -> bool:
        """Return whether a tensor is in memory that a later load overwrites."""
        return self._arena.contains(tensor) or (self._mapped is not None and self._mapped.contains(tensor))

    def hold(self) -> AbstractContextManager[None]:
        """Return a context in which the weights of a loaded phase stay valid."""
        return self._reader.hold()

    @property
    def resident(self) -> tuple[int, ...]:
        """Numbers of the resident phases."""
        return self._kept

    def is_widened(self, phase: int) -> bool:
        """Return whether the compute dtype of a phase is wider than its stored dtype."""
        return self._wide[phase] > 0

    def load_resident(self) -> None:
        """Load the resident phases, converted to their compute dtype."""
        for phase, region in self._own.items():
            layout = self._layouts[phase]
            if self.is_widened(phase):
                self._reader.read(layout, self.buffers[0].memory)
                with self.hold():
                    self._resident[phase] = self._widen_weights(phase, self.buffers[0], region)
            else:
                self._reader.read(layout, region.memory)
                self._resident[phase] = self._view_stored(phase, region)

    def get_weights(self, phase: int, buffer: int | None) -> Weights:
        """Return the weights of a resident phase (`buffer` None), or of a phase in a buffer.

        Weights stored in 16 bits are widened to float32 in a single area, which the next phase overwrites.
        """
        if buffer is None:
            return self._resident[phase]
        if self.is_widened(phase):
            return self._widen_weights(phase, self.buffers[buffer], self._area)
        if (phase, buffer) not in self._views:
            self._views[phase, buffer] = self._view_stored(phase, self.buffers[buffer])
        return self._views[phase, buffer]

    def _view_stored(self, phase: int, region: MemoryRegion) -> Weights:
        places = self._layouts[phase].places
        views = [region.view(at, tensor.dtype, tensor.shape) for tensor, at in places]
        return dict(zip(self._names[phase], views, strict=True))

    def _widen_weights(self, phase: int, source: MemoryRegion, into: MemoryRegion) -> Weights:
        weights = {}
        at = 0
        for name, (tensor, place) in zip(self._names[phase], self._layouts[phase].places, strict=True):
            wide = into.view(at, get_compute_dtype(tensor.dtype), tensor.shape)
            weights[name] = wide.copy_(source.view(place, tensor.dtype, tensor.shape))
            at += _get_wide_bytes(tensor) + -_get_wide_bytes(tensor) % ALIGNMENT_BYTES
        return weights
