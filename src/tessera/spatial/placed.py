"""How an activation lies over the ranks: cut into tiles, divided by samples, or whole on every rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tessera.geometry import Box, Mesh, Partition
from tessera.transport.transport import Transport

Kind = Literal["tiles", "samples", "whole"]
Overlap = Literal["none", "split", "recompute", "auto"]
OVERLAPS: tuple[Overlap, ...] = ("none", "split", "recompute", "auto")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What all layers of a cut network have in common."""

    transport: Transport
    mesh: Mesh
    overlap: Overlap = "auto"
    channels_last: bool = False


@dataclass(frozen=True, slots=True)
class Placed:
    """The kind of cut, and who has which pixels of an activation of sizes (n, h, w)."""

    kind: Kind
    mesh: Mesh
    partition: Partition

    @classmethod
    def of(cls, kind: Kind, mesh: Mesh, sizes: Sequence[int]) -> Placed:
        """The same sizes are always cut alike, so that what is added to each other lies alike."""
        if kind == "tiles":
            return cls(kind, mesh, Partition.grid(sizes, mesh))
        if kind == "samples":
            return cls(kind, mesh, Partition.samples(sizes, mesh.size))
        return cls(kind, mesh, Partition.everywhere(sizes, mesh.size))

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.partition.sizes

    def resized(self, spatial: Sequence[int]) -> Placed:
        """The same kind of cut of an activation with other spatial sizes."""
        return Placed.of(self.kind, self.mesh, (self.sizes[0], *spatial))

    def box(self, rank: int) -> Box:
        """What a rank has."""
        return self.partition.hull(rank)
