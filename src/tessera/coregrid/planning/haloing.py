"""How many sticks the haloed shards hold and move, without going through them one by one; and the runs, when asked.

Real sticks keep their order among the padded ones. So what a core's span of padded sticks holds of the input is one
range of input sticks, and its ends follow from a division.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tessera.coregrid.convolution import Convolution
from tessera.coregrid.planning.sharding import Sharding
from tessera.coregrid.planning.sticks import Haloing, Ints, Mode, Sticks
from tessera.geometry import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class HaloCount:
    """Sticks of every core's haloed shard: all it holds, those it copies, those that come and go."""

    sizes: tuple[int, ...]
    copied: tuple[int, ...]
    received: tuple[int, ...]
    pushed: tuple[int, ...]

    @property
    def largest(self) -> int:
        """Sticks of the largest haloed shard: every core sets as much memory aside."""
        return max(self.sizes)

    @property
    def pads(self) -> int:
        """Sticks of padding that the cores write."""
        return sum(self.sizes) - sum(self.copied) - sum(self.received)


@lru_cache(maxsize=512)
def halo_count(conv: Convolution, sharding: Sharding, mode: Mode = "span") -> HaloCount:
    """How many sticks the haloed shards of a convolution hold and move."""
    if mode == "span":
        sticks = Sticks((conv.batch, conv.height, conv.width), conv.window)
        return counted(sticks, sharding.inputs(conv.inputs), sharding.outputs(conv.outputs))
    found = haloing_of(conv, sharding, mode)
    cores = range(sharding.rows)
    moved = {link: sum(length for _, _, length in runs) for link, runs in found.remote.items()}
    return HaloCount(
        sizes=found.sizes,
        copied=tuple(sum(length for _, _, length in runs) for runs in found.local),
        received=tuple(sum(n for (_, to), n in moved.items() if to == core) for core in cores),
        pushed=tuple(sum(n for (source, _), n in moved.items() if source == core) for core in cores),
    )


@lru_cache(maxsize=128)
def haloing_of(conv: Convolution, sharding: Sharding, mode: Mode = "span") -> Haloing:
    """The runs that make the haloed shards of a convolution: pads, local and remote moves."""
    sticks = Sticks((conv.batch, conv.height, conv.width), conv.window)
    return sticks.haloing(sharding.inputs(conv.inputs), sharding.outputs(conv.outputs), mode)


def counted(sticks: Sticks, inputs: Sequence[Interval], outputs: Sequence[Interval]) -> HaloCount:
    """The counts of one contiguous span per core, in as many steps as there are cores."""
    first = np.array([run.start for run in outputs])
    last = np.array([run.stop - 1 for run in outputs])
    empty = last < first
    (down, right), (tall, wide) = sticks.window.stride, sticks.window.reach
    image, line = sticks.padded_height * sticks.padded_width, sticks.padded_width

    def corner(output: Ints) -> Ints:
        """The padded stick at the top left of an output's window."""
        pixel, column = np.divmod(output, sticks.out_width)
        sample, row = np.divmod(pixel, sticks.out_height)
        found: Ints = sample * image + row * down * line + column * right
        return found

    start = np.where(empty, 0, corner(first))
    stop = np.where(empty, 0, corner(last) + (tall - 1) * line + wide)
    begins, ends = _real_before(sticks, start), _real_before(sticks, stop)
    own_from, own_to = np.array([run.start for run in inputs]), np.array([run.stop for run in inputs])
    # how many sticks of every core's range (rows) lie with every core (columns)
    shared = np.minimum(ends[:, None], own_to) - np.maximum(begins[:, None], own_from)
    shared = np.where(empty[:, None], 0, np.maximum(shared, 0))
    copied = np.diagonal(shared)
    return HaloCount(
        sizes=tuple((stop - start).tolist()),
        copied=tuple(copied.tolist()),
        received=tuple((shared.sum(1) - copied).tolist()),
        pushed=tuple((shared.sum(0) - copied).tolist()),
    )


def _real_before(sticks: Sticks, padded: Ints) -> Ints:
    """How many sticks of the input come before a padded stick."""
    _, height, width = sticks.sizes
    (top, _), (left, _) = sticks.window.padding
    pixel, column = np.divmod(padded, sticks.padded_width)
    sample, row = np.divmod(pixel, sticks.padded_height)
    row, inside = np.clip(row - top, 0, height), (row >= top) & (row < top + height)
    found: Ints = sample * height * width + row * width + np.where(inside, np.clip(column - left, 0, width), 0)
    return found
