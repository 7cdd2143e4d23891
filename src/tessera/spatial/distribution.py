"""The distribution of an activation over the ranks as tiles, and the settings of a layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tessera.geometry import Box, Mesh, Partition
from tessera.transport.transport import Transport

Overlap = Literal["none", "split", "recompute", "auto"]
OVERLAPS: tuple[Overlap, ...] = ("none", "split", "recompute", "auto")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpatialSettings:
    """The settings of a layer on tiles."""

    transport: Transport
    mesh: Mesh | tuple[int, ...]
    overlap: Overlap = "auto"
    channels_last: bool = False


@dataclass(frozen=True, slots=True)
class Distribution:
    """The tiles of an activation of sizes (n, h, w) or (n, d, h, w): the boxes that each rank owns."""

    mesh: Mesh | tuple[int, ...]
    partition: Partition

    @classmethod
    def of(cls, mesh: Mesh | tuple[int, ...], sizes: Sequence[int]) -> Distribution:
        """Split an activation of `sizes` evenly.

        Height and width are split over the rows and columns of a `Mesh`. A tuple is the number of parts of each of the
        last dims.
        """
        return cls(mesh, Partition.split_by_grid(sizes, mesh))

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.partition.sizes

    def resize(self, spatial: Sequence[int]) -> Distribution:
        """Return the distribution of an activation with other spatial sizes."""
        return Distribution.of(self.mesh, (self.sizes[0], *spatial))

    def get_box(self, rank: int) -> Box:
        """Return the box that a rank owns."""
        return self.partition.get_box(rank)
