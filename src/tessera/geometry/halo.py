"""The halo plan: the pixels that each worker pads, copies, sends and receives before it computes its output.

Terms, a drawing and the special cases are in the docstring of `tessera.geometry`. A plan follows from one rule: each
pixel of a worker's need (its required input) is either padding, or a pixel of the image that comes from its owner.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Literal

from tessera.geometry.box import Box, Interval, format_sizes, make_disjoint
from tessera.geometry.owners import OwnerIndex
from tessera.geometry.partition import Partition
from tessera.geometry.window import Window

PaddingMode = Literal["zeros", "reflect", "replicate", "circular"]
PADDING_MODES: tuple[PaddingMode, ...] = ("zeros", "reflect", "replicate", "circular")


@dataclass(frozen=True, slots=True)
class Move:
    """A box that worker `source` sends to worker `target`.

    The two boxes differ only for circular padding: `source_box` is in the image, `target_box` in the target's frame.
    """

    source: int
    target: int
    source_box: Box
    target_box: Box

    def __repr__(self) -> str:
        where = "" if self.source_box == self.target_box else f" as {self.target_box!r}"
        return f"Move({self.source} -> {self.target}: {self.source_box!r}{where})"


@dataclass(frozen=True, slots=True)
class Fill:
    """Padding that copies pixels of the worker's own frame along one dim: mirrored, or the edge pixel repeated.

    The order of fills matters: padding along a later dim also copies the padding along earlier dims, which fills the
    corners.
    """

    axis: int
    source: Interval
    target: Interval
    mirrored: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlan:
    """One worker's part of a plan: its tensor spans `owned`, its buffer spans `frame`, its output reads `need`."""

    owned: Box
    need: Box
    frame: Box
    pads: tuple[Box, ...]
    keeps: tuple[Move, ...]
    sends: tuple[Move, ...]
    receives: tuple[Move, ...]
    fills: tuple[Fill, ...]


class HaloPlan:
    """The plan of an exchange that gives every worker the input of its part of the output.

    >>> from tessera.geometry import Mesh
    >>> image = Partition.split_by_grid((1, 4, 6), Mesh(1, 2))
    >>> plan = HaloPlan(image, Window.of(3, padding=1), image)
    >>> plan.workers[0].frame
    Box(0:1, -1:5, -1:4)
    >>> plan.workers[0].receives
    (Move(1 -> 0: Box(0:1, 0:4, 3:4)),)
    """

    def __init__(
        self,
        inputs: Partition | Sequence[Box | Sequence[Box]],
        window: Window,
        outputs: Partition | Sequence[Box | Sequence[Box]],
        mode: PaddingMode = "zeros",
    ) -> None:
        self.inputs, self.window, self.outputs, self.mode = Partition.of(inputs), window, Partition.of(outputs), mode
        self._check_arguments()
        needs = [make_disjoint([window.compute_input_box(box) for box in shard]) for shard in self.outputs.shards]
        if mode in ("reflect", "replicate") and any(len(need) > 1 for need in needs):
            raise ValueError(f"{mode} padding requires one output box per worker")
        image, owners = Box.from_sizes(self.inputs.sizes), OwnerIndex(self.inputs.shards)
        moves = [list(_find_moves(owners, worker, need, image, mode)) for worker, need in enumerate(needs)]
        sends: list[list[Move]] = [[] for _ in needs]
        for received in moves:
            for move in received:
                sends[move.source].append(move)
        self.workers = tuple(
            self._plan_worker(worker, needs[worker], moves[worker], sends[worker]) for worker in range(len(needs))
        )

    def _check_arguments(self) -> None:
        inputs, outputs, window = self.inputs, self.outputs, self.window
        if self.mode not in PADDING_MODES:
            raise ValueError(f"unknown padding mode {self.mode!r}; allowed: {', '.join(PADDING_MODES)}")
        if inputs.workers != outputs.workers:
            raise ValueError(f"the input is split over {inputs.workers} workers, the output over {outputs.workers}")
        size = inputs.sizes[1:]
        output_sizes = (inputs.sizes[0], *window.compute_output_size(size))
        if output_sizes != outputs.sizes:
            raise ValueError(
                f"the output of {window!r} on {format_sizes(inputs.sizes)} has sizes {format_sizes(output_sizes)}, "
                f"got {format_sizes(outputs.sizes)}"
            )
        if self.mode == "zeros":
            return
        if window.transposed or window.ceil_mode:
            raise ValueError(f"{self.mode} padding requires a plain convolution, not {window!r}")
        for padding, length in zip(window.padding, size, strict=True):  # torch has these limits as well
            most = {"reflect": length - 1, "circular": length}.get(self.mode, max(padding))
            if max(padding) > most:
                raise ValueError(f"{self.mode} padding of {max(padding)} pixels exceeds an image of {length} pixels")

    def _plan_worker(self, worker: int, needs: Sequence[Box], moves: list[Move], sends: list[Move]) -> WorkerPlan:
        image, empty = Box.from_sizes(self.inputs.sizes), Box(tuple(Interval(0, 0) for _ in self.inputs.sizes))
        read = reduce(Box.hull, needs, empty)
        frame = _extend_to_sources(read, image, self.mode) if read else read
        return WorkerPlan(
            owned=self.inputs.get_box(worker),
            need=read,
            frame=frame,
            pads=tuple(p for need in needs for p in need.subtract(image)) if self.mode == "zeros" else (),
            keeps=tuple(move for move in moves if move.source == worker),
            sends=tuple(move for move in sends if move.target != worker),
            receives=tuple(move for move in moves if move.source != worker),
            fills=tuple(_find_fills(frame, image, self.mode)) if frame else (),
        )

    @property
    def moves(self) -> Iterator[Move]:
        """All moves between different workers."""
        return (move for worker in self.workers for move in worker.receives)

    @property
    def is_local(self) -> bool:
        """Whether no worker receives pixels from another worker."""
        return not any(worker.receives for worker in self.workers)

    def count_link_bytes(self, pixel_bytes: int) -> dict[tuple[int, int], int]:
        """Return the bytes sent by each (source, target) pair. A pixel has `pixel_bytes` bytes with all channels.

        >>> from tessera.geometry import Mesh
        >>> image = Partition.split_by_grid((1, 4, 6), Mesh(1, 2))
        >>> HaloPlan(image, Window.of(3, padding=1), image).count_link_bytes(4)
        {(1, 0): 16, (0, 1): 16}
        """
        counts: dict[tuple[int, int], int] = {}
        for move in self.moves:
            link = move.source, move.target
            counts[link] = counts.get(link, 0) + move.source_box.size * pixel_bytes
        return counts

    def __repr__(self) -> str:
        pixels = sum(move.source_box.size for move in self.moves)
        return f"HaloPlan({self.window!r}, {len(self.workers)} workers, {pixels} pixels move)"


def _find_moves(owners: OwnerIndex, target: int, needs: Sequence[Box], image: Box, mode: PaddingMode) -> Iterator[Move]:
    """Yield the moves that fill the required boxes of worker `target`.

    Each pixel moves once. The source is the target itself if it owns the pixel.
    """
    for need in needs:
        for target_box, offset in _split_into_image_parts(need, image, mode):
            if not any(offset):
                yield from (Move(source, target, box, box) for source, box in owners.split_by_owner(target_box, target))
                continue
            source_box = target_box.shift([-step for step in offset])
            yield from (
                Move(source, target, box, box.shift(offset))
                for source, box in owners.split_by_owner(source_box, target)
            )


def _split_into_image_parts(need: Box, image: Box, mode: PaddingMode) -> Iterator[tuple[Box, tuple[int, ...]]]:
    """Yield the parts of a required box that are pixels of the image, each with its offset to the image (circular)."""
    if mode == "circular":
        choices = [list(_split_by_period(dim, len(whole))) for dim, whole in zip(need.dims, image.dims, strict=True)]
        for chosen in product(*choices):
            yield Box(tuple(part for part, _ in chosen)), tuple(offset for _, offset in chosen)
        return
    if inside := _extend_to_sources(need, image, mode) & image:
        yield inside, (0,) * len(need.dims)


def _split_by_period(need: Interval, size: int) -> Iterator[tuple[Interval, int]]:
    """Split a required interval at the periods of a circular image; yield each part with the offset of its period.

    >>> list(_split_by_period(Interval(-1, 5), 4))
    [(Interval(-1:0), -4), (Interval(0:4), 0), (Interval(4:5), 4)]
    """
    for period in range(need.start // size, (need.stop - 1) // size + 1):
        yield need & Interval(period * size, (period + 1) * size), period * size


def _extend_to_sources(need: Box, image: Box, mode: PaddingMode) -> Box:
    """Extend a required box by the pixels of the image that its padding repeats."""
    dims = list(need.dims)
    for fill in _find_fills(need, image, mode):
        dims[fill.axis] = dims[fill.axis].hull(fill.source)
    return Box(tuple(dims))


def _find_fills(need: Box, image: Box, mode: PaddingMode) -> Iterator[Fill]:
    """Yield the fills of a required box: padding before and after the image along each dim, with its source pixels."""
    if mode not in ("reflect", "replicate"):
        return
    mirrored = mode == "reflect"
    for axis, (dim, whole) in enumerate(zip(need.dims, image.dims, strict=True)):
        before, after = Interval(dim.start, min(dim.stop, whole.start)), Interval(max(dim.start, whole.stop), dim.stop)
        last = whole.stop - 1
        if len(before):
            mirror = Interval(1 - before.stop, 1 - before.start)
            yield Fill(axis, mirror if mirrored else Interval(0, 1), before, mirrored)
        if len(after):
            mirror = Interval(2 * last - after.stop + 1, 2 * last - after.start + 1)
            yield Fill(axis, mirror if mirrored else Interval(last, last + 1), after, mirrored)
