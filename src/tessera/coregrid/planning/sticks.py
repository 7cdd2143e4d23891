"""Which sticks a core needs for its output, and where they come from, as runs.

Sticks are counted over the padded images, row after row. A core's output needs a range of them; what of it is
padding the core writes itself, what is its own it copies, what is another core's that core pushes to it. Runs are as
long as they can be: one goes on while source and destination are both consecutive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tessera.geometry import Interval, Window

Mode = Literal["span", "exact"]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Haloing:
    """What makes every core's haloed shard, in sticks.

    `ranges` are the padded sticks from a core's first to its last; `sizes` how many of them its shard holds: all of
    them (`span`), or those that a window touches (`exact`). Runs are (destination, length) and (source, destination,
    length), counted from the start of a core's shard.
    """

    mode: Mode
    ranges: tuple[Interval, ...]
    sizes: tuple[int, ...]
    pads: tuple[tuple[tuple[int, int], ...], ...]
    local: tuple[tuple[tuple[int, int, int], ...], ...]
    remote: dict[tuple[int, int], tuple[tuple[int, int, int], ...]]

    @property
    def largest(self) -> int:
        """Sticks of the largest haloed shard: every core sets as much memory aside."""
        return max(self.sizes)

    def moved(self) -> tuple[int, int]:
        """Sticks copied within cores, and pushed between them."""
        own = sum(length for runs in self.local for _, _, length in runs)
        return own, sum(length for runs in self.remote.values() for _, _, length in runs)


class Sticks:
    """The padded sticks of a batch of images under a window."""

    def __init__(self, sizes: Sequence[int], window: Window) -> None:
        self.sizes, self.window = tuple(sizes), window
        batch, height, width = self.sizes
        self.out_height, self.out_width = window.output_size((height, width))
        (top, _), (left, _) = window.padding
        # with ceil mode the last windows may stick out below and to the right of the padding
        self.padded_height = max(
            height + sum(window.padding[0]), (self.out_height - 1) * window.stride[0] + window.reach[0]
        )
        self.padded_width = max(
            width + sum(window.padding[1]), (self.out_width - 1) * window.stride[1] + window.reach[1]
        )
        self._origin = top, left
        self.outputs = batch * self.out_height * self.out_width

    @cached_property
    def trace(self) -> Ints:
        """The padded stick at the top left of every output's window."""
        batch, (down, right) = self.sizes[0], self.window.stride
        image = np.arange(batch) * self.padded_height * self.padded_width
        row = np.arange(self.out_height) * down * self.padded_width
        column = np.arange(self.out_width) * right
        found: Ints = (image[:, None, None] + row[:, None] + column).reshape(-1)
        return found

    @cached_property
    def taps(self) -> Ints:
        """How far the window's pixels lie from its top left, in padded sticks, row after row."""
        rows, columns = (np.arange(k) * d for k, d in zip(self.window.kernel, self.window.dilation, strict=True))
        return (rows[:, None] * self.padded_width + columns).reshape(-1)

    @cached_property
    def source(self) -> Ints:
        """The input stick that every padded stick is, or -1 for padding."""
        batch, height, width = self.sizes
        found = np.full((batch, self.padded_height, self.padded_width), -1)
        top, left = self._origin
        found[:, top : top + height, left : left + width] = np.arange(batch * height * width).reshape(self.sizes)
        return found.reshape(-1)

    def spans(self, outputs: Sequence[Interval]) -> list[Interval]:
        """The padded sticks from the first to the last that each run of outputs reads."""
        last = int(self.taps[-1]) + 1
        return [
            Interval(int(self.trace[run.start]), int(self.trace[run.stop - 1]) + last) if len(run) else Interval(0, 0)
            for run in outputs
        ]

    def touched(self, outputs: Sequence[Interval], spans: Sequence[Interval]) -> NDArray[np.bool_]:
        """Which sticks of the spans, one after the other, a window touches."""
        lengths = [len(span) for span in spans]
        base = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        shift = np.repeat(
            [b - span.start for b, span in zip(base, spans, strict=True)], [len(run) for run in outputs]
        ).astype(np.int64)
        order = np.concatenate([np.arange(run.start, max(run.start, run.stop)) for run in outputs])
        at = self.trace[order] + shift
        found = np.zeros(sum(lengths), dtype=bool)
        for tap in self.taps:
            found[at + tap] = True
        return found

    def haloing(self, inputs: Sequence[Interval], outputs: Sequence[Interval], mode: Mode = "span") -> Haloing:
        """How the haloed shards are made, if the cores have these runs of input and make these runs of output."""
        spans = self.spans(outputs)
        lengths = np.array([len(span) for span in spans])
        stick = np.concatenate([np.arange(span.start, max(span.start, span.stop)) for span in spans])
        core = np.repeat(np.arange(len(spans)), lengths)
        if mode == "exact":
            kept = self.touched(outputs, spans)
            stick, core = stick[kept], core[kept]
            lengths = np.bincount(core, minlength=len(spans))
        place = np.arange(len(stick)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        source = self.source[stick]
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
        for at, whose, taken, placed, length in runs:
            if whose < 0:
                pads[at].append((placed, length))
            elif whose == at:
                local[at].append((taken, placed, length))
            else:
                remote.setdefault((whose, at), []).append((taken, placed, length))
        return Haloing(
            mode,
            tuple(spans),
            tuple(lengths.tolist()),
            tuple(map(tuple, pads)),
            tuple(map(tuple, local)),
            {link: tuple(found) for link, found in sorted(remote.items())},
        )
