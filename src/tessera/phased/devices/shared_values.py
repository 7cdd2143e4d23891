"""Memory slots of activations in memory shared by device processes; a slot is reused after its value's last use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tessera.errors import TesseraError, get_first_line
from tessera.models.structure import map_structure
from tessera.phased.memory.activations import Values, is_dense
from tessera.phased.memory.budget import ALIGNMENT_BYTES
from tessera.phased.network.programs import PhasedNetwork
from tessera.phased.store.layout import PhaseLayout
from tessera.phased.store.weights_file import get_compute_dtype

ViewFlat = Callable[[int, int, torch.dtype], Tensor]  # (byte offset, number of elements, dtype) -> flat tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedSlot:
    """The slot of one tensor: its byte offset `at` in the memory of a mini-batch, and its layout."""

    at: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    nbytes: int

    def view(self, view_flat: ViewFlat, base: int) -> Tensor:
        """Return the tensor, without a copy, for the mini-batch whose memory begins at byte offset `base`."""
        if self.nbytes == 0:
            return torch.empty_strided(self.shape, self.strides, dtype=self.dtype)
        flat = view_flat(base + self.at, self.nbytes // self.dtype.itemsize, self.dtype)
        return flat.as_strided(self.shape, self.strides)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedValueTable:
    """Slots of all tensors of a mini-batch, its values that are not tensors, and the bytes that it requires."""

    slots: Mapping[str, SharedSlot]
    constants: Mapping[str, Any]
    nbytes: int


def plan_shared_values(
    network: PhasedNetwork, layouts: Sequence[PhaseLayout], names: Sequence[Sequence[str]], inputs: Values
) -> SharedValueTable:
    """Run a mini-batch through all phases on the meta device, and assign slots to the values between phases."""
    values = {name: v.to("meta") if isinstance(v, Tensor) else v for name, v in inputs.items()}
    crossing = dict(values)
    first_phase = dict.fromkeys(values, 0)
    last_phase: dict[str, int] = {}
    for phase, program in enumerate(network.build_programs()):
        tensors = [tensor for tensor, _ in layouts[phase].places]
        program.module.to("meta")  # moves non-persistent buffers and constants; the program is a copy
        weights = [torch.empty(t.shape, dtype=get_compute_dtype(t.dtype), device="meta") for t in tensors]
        program.set_weights(dict(zip(names[phase], weights, strict=True)))
        try:
            with torch.no_grad():
                values = program.run(values)
        except Exception as error:
            raise TesseraError(f"phase {phase} does not run on this input: {get_first_line(error)}") from error
        _check_shareable(values)
        crossing |= values
        first_phase |= dict.fromkeys(program.boundary.outputs, phase)
        last_phase |= dict.fromkeys(program.boundary.last_use, phase)
    return _assign_slots(crossing, first_phase, last_phase, len(network.parts))


def _check_shareable(values: Values) -> None:
    """Raise an error for values that processes cannot share: nested tensors, and tensors that share memory."""
    do = "use workers='threads', or begin phases at other modules"
    owners: dict[int, str] = {}
    for name, value in values.items():
        inner: list[Any] = []
        map_structure(value, inner.append)
        if not isinstance(value, Tensor) and any(isinstance(leaf, Tensor) for leaf in inner):
            structure = type(value).__name__
            raise TesseraError(
                f"{name} crosses phases as a {structure} of tensors, which workers='processes' does not support", do=do
            )
        if isinstance(value, Tensor):
            owner = owners.setdefault(value.untyped_storage()._cdata, name)
            if owner != name:  # aliases: a write to one tensor must change the other
                raise TesseraError(
                    f"{owner} and {name} cross phases in the same memory, which workers='processes' does not support",
                    do=do,
                )


def _assign_slots(
    values: Values, first_phase: Mapping[str, int], last_phase: Mapping[str, int], phases: int
) -> SharedValueTable:
    slots: dict[str, SharedSlot] = {}
    free: list[tuple[int, int]] = []  # offset and size of free slots
    end = 0
    tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
    for phase in range(phases):
        for name in [name for name in tensors if first_phase[name] == phase]:
            tensor = tensors[name] if is_dense(tensors[name]) else tensors[name].contiguous()
            size = tensor.nbytes + -tensor.nbytes % ALIGNMENT_BYTES
            fitting = [hole for hole in free if hole[1] >= size]
            if fitting:
                hole = min(fitting, key=lambda hole: hole[1])
                free.remove(hole)
                at = hole[0]
                if hole[1] > size:
                    free.append((at + size, hole[1] - size))
            else:
                at, end = end, end + size
            slots[name] = SharedSlot(
                at=at,
                shape=tuple(tensor.shape),
                strides=tensor.stride(),
                dtype=tensor.dtype,
                nbytes=tensor.nbytes,
            )
        for name in [name for name, when in last_phase.items() if when == phase and name in slots]:
            free.append((slots[name].at, slots[name].nbytes + -slots[name].nbytes % ALIGNMENT_BYTES))
    return SharedValueTable(slots=slots, constants={n: v for n, v in values.items() if n not in tensors}, nbytes=end)
