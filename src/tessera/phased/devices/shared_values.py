"""Activations in memory that all device processes map: where each value lies, and where its place is used again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tessera.errors import TesseraError, first_line
from tessera.models.structure import mapped
from tessera.phased.memory.activations import Values, is_dense
from tessera.phased.network.network import Network
from tessera.phased.store.dtypes import computed_dtype
from tessera.phased.store.layout import Layout

ALIGNMENT = 64
Numbers = Callable[[int, int, torch.dtype], Tensor]  # of a memory: from a byte on, how many, of which kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A tensor in the memory of one mini-batch."""

    at: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    nbytes: int

    def view(self, numbers: Numbers, base: int) -> Tensor:
        """The tensor itself, of a mini-batch that begins at a byte of the memory; nothing is copied."""
        if self.nbytes == 0:
            return torch.empty_strided(self.shape, self.strides, dtype=self.dtype)
        flat = numbers(base + self.at, self.nbytes // self.dtype.itemsize, self.dtype)
        return flat.as_strided(self.shape, self.strides)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The places of all values of a mini-batch, what is no tensor as it is, and the bytes of one mini-batch."""

    places: Mapping[str, Place]
    constants: Mapping[str, Any]
    nbytes: int


def table_of(network: Network, layouts: Sequence[Layout], names: Sequence[Sequence[str]], given: Values) -> Table:
    """Follow a mini-batch through all phases on the meta device, and find places for what crosses."""
    values = {name: v.to("meta") if isinstance(v, Tensor) else v for name, v in given.items()}
    found = dict(values)
    born = dict.fromkeys(values, 0)
    last: dict[str, int] = {}
    for phase, program in enumerate(network.programs()):
        tensors = [tensor for tensor, _ in layouts[phase].places]
        program.module.to("meta")  # buffers and constants that no file holds; a copy, as all programs are
        bare = [torch.empty(t.shape, dtype=computed_dtype(t.dtype), device="meta") for t in tensors]
        program.set_weights(dict(zip(names[phase], bare, strict=True)))
        try:
            with torch.no_grad():
                values = program.run(values)
        except Exception as error:
            raise TesseraError(f"phase {phase} does not run on this input: {first_line(error)}") from error
        _check_shareable(values)
        found |= values
        born |= dict.fromkeys(program.border.outputs, phase)
        last |= dict.fromkeys(program.border.last_use, phase)
    return _placed(found, born, last, len(network.parts))


def _check_shareable(values: Values) -> None:
    """Refuse what would be another thing in memory of its own: tensors in a structure, or two in the same memory."""
    do = "use workers threads, or cut elsewhere"
    owners: dict[int, str] = {}
    for name, value in values.items():
        inner: list[Any] = []
        mapped(value, inner.append)
        if not isinstance(value, Tensor) and any(isinstance(one, Tensor) for one in inner):
            kind = type(value).__name__
            raise TesseraError(f"{name} crosses phases as a {kind} of tensors, which processes do not share", do=do)
        if isinstance(value, Tensor):
            other = owners.setdefault(value.untyped_storage()._cdata, name)
            if other != name:  # a write to one would have to be seen in the other
                raise TesseraError(f"{other} and {name} cross phases in the same memory, which processes do not", do=do)


def _placed(found: Values, born: Mapping[str, int], last: Mapping[str, int], phases: int) -> Table:
    places: dict[str, Place] = {}
    free: list[tuple[int, int]] = []  # where, how much
    end = 0
    tensors = {name: value for name, value in found.items() if isinstance(value, Tensor)}
    for phase in range(phases):
        for name in [name for name in tensors if born[name] == phase]:
            tensor = tensors[name] if is_dense(tensors[name]) else tensors[name].contiguous()
            room = tensor.nbytes + -tensor.nbytes % ALIGNMENT
            fitting = [hole for hole in free if hole[1] >= room]
            if fitting:
                hole = min(fitting, key=lambda hole: hole[1])
                free.remove(hole)
                at = hole[0]
                if hole[1] > room:
                    free.append((at + room, hole[1] - room))
            else:
                at, end = end, end + room
            places[name] = Place(
                at=at,
                shape=tuple(tensor.shape),
                strides=tensor.stride(),
                dtype=tensor.dtype,
                nbytes=tensor.nbytes,
            )
        for name in [name for name, when in last.items() if when == phase and name in places]:
            free.append((places[name].at, places[name].nbytes + -places[name].nbytes % ALIGNMENT))
    return Table(places=places, constants={n: v for n, v in found.items() if n not in tensors}, nbytes=end)
