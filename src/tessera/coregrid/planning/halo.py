"""Halo of a sharded convolution: the sticks that a core's output reads, and the runs of copies that collect them.

Padded sticks are the pixels of the padded images, numbered row by row. The output of a core reads a range of padded
sticks. The core writes the padding in this range, copies the sticks that it holds, and receives all other sticks from
the cores that hold them. A run is a maximal copy with consecutive source and destination sticks.

The number of sticks can be computed without building the runs: input sticks have the same order with and without
padding, so the input sticks within a range of padded sticks are one range as well, whose ends follow from a division.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from tessera.coregrid.config import HaloMode
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.planning.sharding import Sharding
from tessera.geometry import Interval, Window

IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class HaloRuns:
    """The runs of sticks that fill the haloed shard of every core.

    `ranges` are the padded sticks from the first to the last that a core's output reads. `sizes` are the numbers of
    sticks in the haloed shards: the whole range (mode `span`), or only sticks that a window reads (`exact`). Runs are
    (destination, length) for padding and (source, destination, length) for copies; sources are relative to the start
    of the source core's shard, destinations to the start of the haloed shard.
    """

    mode: HaloMode
    ranges: tuple[Interval, ...]
    sizes: tuple[int, ...]
    pads: tuple[tuple[tuple[int, int], ...], ...]
    local: tuple[tuple[tuple[int, int, int], ...], ...]
    remote: dict[tuple[int, int], tuple[tuple[int, int, int], ...]]


class PaddedSticks:
    """The padded sticks of a batch of images, and the sticks that each window position reads."""

    def __init__(self, sizes: Sequence[int], window: Window) -> None:
        self.sizes, self.window = tuple(sizes), window
        batch, height, width = self.sizes
        self.out_height, self.out_width = window.compute_output_size((height, width))
        (top, _), (left, _) = window.padding
        # in ceil mode the last windows may extend beyond the padding
        self.padded_height = max(
            height + sum(window.padding[0]), (self.out_height - 1) * window.stride[0] + window.extent[0]
        )
        self.padded_width = max(
            width + sum(window.padding[1]), (self.out_width - 1) * window.stride[1] + window.extent[1]
        )
        self._origin = top, left
        self.outputs = batch * self.out_height * self.out_width

    @cached_property
    def corners(self) -> IntArray:
        """Number of the padded stick at the top left of every output's window."""
        batch, (down, right) = self.sizes[0], self.window.stride
        image = np.arange(batch) * self.padded_height * self.padded_width
        row = np.arange(self.out_height) * down * self.padded_width
        column = np.arange(self.out_width) * right
        corners: IntArray = (image[:, None, None] + row[:, None] + column).reshape(-1)
        return corners

    @cached_property
    def taps(self) -> IntArray:
        """Offset of every window pixel from the window's top left pixel in padded sticks, row by row."""
        rows, columns = (np.arange(k) * d for k, d in zip(self.window.kernel, self.window.dilation, strict=True))
        return (rows[:, None] * self.padded_width + columns).reshape(-1)

    @cached_property
    def input_stick_numbers(self) -> IntArray:
        """Number of the input stick at every padded stick, or -1 for padding."""
        batch, height, width = self.sizes
        sources = np.full((batch, self.padded_height, self.padded_width), -1)
        top, left = self._origin
        sources[:, top : top + height, left : left + width] = np.arange(batch * height * width).reshape(self.sizes)
        return sources.reshape(-1)

    def find_spans(self, outputs: Sequence[Interval]) -> list[Interval]:
        """Return, for every range of outputs, the range from the first to the last padded stick that it reads."""
        last = int(self.taps[-1]) + 1
        return [
            Interval(int(self.corners[run.start]), int(self.corners[run.stop - 1]) + last)
            if len(run)
            else Interval(0, 0)
            for run in outputs
        ]

    def find_read_sticks(self, outputs: Sequence[Interval], spans: Sequence[Interval]) -> NDArray[np.bool_]:
        """Return a mask over the concatenated `spans` that is true for sticks that a window of `outputs` reads."""
        lengths = [len(span) for span in spans]
        base = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        shift = np.repeat(
            [b - span.start for b, span in zip(base, spans, strict=True)], [len(run) for run in outputs]
        ).astype(np.int64)
        order = np.concatenate([np.arange(run.start, max(run.start, run.stop)) for run in outputs])
        at = self.corners[order] + shift
        touched = np.zeros(sum(lengths), dtype=bool)
        for tap in self.taps:
            touched[at + tap] = True
        return touched

    def build_halo_runs(
        self, inputs: Sequence[Interval], outputs: Sequence[Interval], mode: HaloMode = "span"
    ) -> HaloRuns:
        """Build the halo runs for cores that hold the sticks `inputs[core]` and compute the sticks `outputs[core]`."""
        spans = self.find_spans(outputs)
        lengths = np.array([len(span) for span in spans])
        stick = np.concatenate([np.arange(span.start, max(span.start, span.stop)) for span in spans])
        core = np.repeat(np.arange(len(spans)), lengths)
        if mode == "exact":
            touched = self.find_read_sticks(outputs, spans)
            stick, core = stick[touched], core[touched]
            lengths = np.bincount(core, minlength=len(spans))
        place = np.arange(len(stick)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        source = self.input_stick_numbers[stick]
        starts = np.array([run.start for run in inputs])
        owner = np.where(source >= 0, np.searchsorted(starts, source, side="right") - 1, -1)
        offset = np.where(source >= 0, source - starts[owner], 0)
        begins = np.ones(len(stick), dtype=bool)
        same = (core[1:] == core[:-1]) & (owner[1:] == owner[:-1])
        begins[1:] = ~(same & ((owner[1:] < 0) | (offset[1:] == offset[:-1] + 1)))
        first = np.flatnonzero(begins)
        runs = zip(
            core[first].tolist(),
            owner[first].tolist(),
            offset[first].tolist(),
            place[first].tolist(),
            np.diff(np.append(first, len(stick))).tolist(),
            strict=True,
        )
        pads: list[list[tuple[int, int]]] = [[] for _ in spans]
        local: list[list[tuple[int, int, int]]] = [[] for _ in spans]
        remote: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        for at, source_core, start, position, length in runs:
            if source_core < 0:
                pads[at].append((position, length))
            elif source_core == at:
                local[at].append((start, position, length))
            else:
                remote.setdefault((source_core, at), []).append((start, position, length))
        return HaloRuns(
            mode,
            tuple(spans),
            tuple(lengths.tolist()),
            tuple(map(tuple, pads)),
            tuple(map(tuple, local)),
            {link: tuple(stick_runs) for link, stick_runs in sorted(remote.items())},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HaloCounts:
    """Number of sticks per row of cores: size of the haloed shard, sticks copied locally, received and sent."""

    sizes: tuple[int, ...]
    copied: tuple[int, ...]
    received: tuple[int, ...]
    sent: tuple[int, ...]

    @property
    def largest(self) -> int:
        """Number of sticks in the largest haloed shard. Every core allocates memory of this size."""
        return max(self.sizes)


@lru_cache(maxsize=512)
def count_halo(conv: Convolution, sharding: Sharding, mode: HaloMode = "span") -> HaloCounts:
    """Count the sticks in the haloed shards of a convolution, and the sticks copied, received and sent."""
    if mode == "span":
        sticks = PaddedSticks((conv.batch, conv.height, conv.width), conv.window)
        return count_span_halo(
            sticks, sharding.split_inputs(conv.input_sticks), sharding.split_outputs(conv.output_sticks)
        )
    halo_runs = plan_halo_runs(conv, sharding, mode)
    cores = range(sharding.rows)
    sticks_by_link = {link: sum(length for _, _, length in stick_runs) for link, stick_runs in halo_runs.remote.items()}
    return HaloCounts(
        sizes=halo_runs.sizes,
        copied=tuple(sum(length for _, _, length in stick_runs) for stick_runs in halo_runs.local),
        received=tuple(sum(n for (_, to), n in sticks_by_link.items() if to == core) for core in cores),
        sent=tuple(sum(n for (source, _), n in sticks_by_link.items() if source == core) for core in cores),
    )


@lru_cache(maxsize=128)
def plan_halo_runs(conv: Convolution, sharding: Sharding, mode: HaloMode = "span") -> HaloRuns:
    """Build the runs of sticks that fill the haloed shards of a convolution."""
    sticks = PaddedSticks((conv.batch, conv.height, conv.width), conv.window)
    return sticks.build_halo_runs(
        sharding.split_inputs(conv.input_sticks), sharding.split_outputs(conv.output_sticks), mode
    )


def count_span_halo(sticks: PaddedSticks, inputs: Sequence[Interval], outputs: Sequence[Interval]) -> HaloCounts:
    """Count the sticks of the halo in mode `span` (one contiguous range per core), without building the runs."""
    first = np.array([run.start for run in outputs])
    last = np.array([run.stop - 1 for run in outputs])
    empty = last < first
    (down, right), (tall, wide) = sticks.window.stride, sticks.window.extent
    image, line = sticks.padded_height * sticks.padded_width, sticks.padded_width

    def find_corner(output: IntArray) -> IntArray:
        """Return the padded stick at the top left of an output's window."""
        pixel, column = np.divmod(output, sticks.out_width)
        sample, row = np.divmod(pixel, sticks.out_height)
        corners: IntArray = sample * image + row * down * line + column * right
        return corners

    start = np.where(empty, 0, find_corner(first))
    stop = np.where(empty, 0, find_corner(last) + (tall - 1) * line + wide)
    begins, ends = _count_inputs_before(sticks, start), _count_inputs_before(sticks, stop)
    own_from, own_to = np.array([run.start for run in inputs]), np.array([run.stop for run in inputs])
    # shared[i, j]: number of sticks in the range of core i that core j holds
    shared = np.minimum(ends[:, None], own_to) - np.maximum(begins[:, None], own_from)
    shared = np.where(empty[:, None], 0, np.maximum(shared, 0))
    copied = np.diagonal(shared)
    return HaloCounts(
        sizes=tuple((stop - start).tolist()),
        copied=tuple(copied.tolist()),
        received=tuple((shared.sum(1) - copied).tolist()),
        sent=tuple((shared.sum(0) - copied).tolist()),
    )


def _count_inputs_before(sticks: PaddedSticks, padded: IntArray) -> IntArray:
    """Return the number of input sticks before each of the padded sticks `padded`."""
    _, height, width = sticks.sizes
    (top, _), (left, _) = sticks.window.padding
    pixel, column = np.divmod(padded, sticks.padded_width)
    sample, row = np.divmod(pixel, sticks.padded_height)
    row, inside = np.clip(row - top, 0, height), (row >= top) & (row < top + height)
    count: IntArray = sample * height * width + row * width + np.where(inside, np.clip(column - left, 0, width), 0)
    return count
