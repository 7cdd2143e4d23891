"""Who pads, keeps, sends and receives what, so that every worker has the input of its own output.

Input and output are cut independently of each other. A worker's *frame* is the box that its output reads; each
pixel of it is padding or belongs to somebody, and comes from there. Nothing else is needed for strides that do not
line up with the cuts, even kernels, halos wider than a neighbour, other partitions, gathering.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Literal

from tessera.geometry.box import Box, Interval, disjoint
from tessera.geometry.owners import Owners
from tessera.geometry.partition import Partition
from tessera.geometry.window import Window

Mode = Literal["zeros", "reflect", "replicate", "circular"]
MODES: tuple[Mode, ...] = ("zeros", "reflect", "replicate", "circular")


@dataclass(frozen=True, slots=True)
class Move:
    """A box that one worker has and another needs: `taken` where it lies, `placed` where it goes."""

    source: int
    target: int
    taken: Box
    placed: Box

    @property
    def reverse(self) -> Move:
        """The same pixels on their way back, as gradients go."""
        return Move(self.target, self.source, self.placed, self.taken)

    def __repr__(self) -> str:
        where = "" if self.taken == self.placed else f" as {self.placed!r}"
        return f"Move({self.source} -> {self.target}: {self.taken!r}{where})"


@dataclass(frozen=True, slots=True)
class Fill:
    """Padding that repeats the worker's own frame along one dim: mirrored, or one pixel over and over.

    Fills are made in their order: padding of a later dim repeats that of the earlier ones, and so has its corners.
    """

    axis: int
    taken: Interval
    placed: Interval
    mirrored: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlan:
    """One worker's part: its tensor spans `owned`, its buffer spans `frame`, its output reads `need`.

    The frame is the need, and where padding repeats pixels of the image, those too.
    """

    owned: Box
    need: Box
    frame: Box
    pads: tuple[Box, ...]
    keeps: tuple[Move, ...]
    sends: tuple[Move, ...]
    receives: tuple[Move, ...]
    fills: tuple[Fill, ...]


class HaloPlan:
    """The exchange that gives every worker the input of its output shard.

    >>> from tessera.geometry import Mesh
    >>> image = Partition.grid((1, 4, 6), Mesh(1, 2))
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
        mode: Mode = "zeros",
    ) -> None:
        self.inputs, self.window, self.outputs, self.mode = Partition.of(inputs), window, Partition.of(outputs), mode
        self._check()
        needs = [disjoint([window.needs(box) for box in shard]) for shard in self.outputs.shards]
        if mode in ("reflect", "replicate") and any(len(need) > 1 for need in needs):
            raise ValueError(f"{mode} padding needs one box of output per worker")
        image, owners = Box.whole(self.inputs.sizes), Owners(self.inputs.shards)
        moves = [list(_moves(owners, worker, need, image, mode)) for worker, need in enumerate(needs)]
        sends: list[list[Move]] = [[] for _ in needs]
        for received in moves:
            for move in received:
                sends[move.source].append(move)
        self.workers = tuple(
            self._worker(worker, needs[worker], moves[worker], sends[worker]) for worker in range(len(needs))
        )

    def _check(self) -> None:
        inputs, outputs, window = self.inputs, self.outputs, self.window
        if self.mode not in MODES:
            raise ValueError(f"unknown padding mode {self.mode!r}; allowed: {', '.join(MODES)}")
        if inputs.workers != outputs.workers:
            raise ValueError(f"{inputs.workers} workers have the input, {outputs.workers} want the output")
        size = inputs.sizes[1:]
        makes = (inputs.sizes[0], *window.output_size(size))
        if makes != outputs.sizes:
            raise ValueError(f"{window!r} makes {_by(makes)} of {_by(inputs.sizes)}, not {_by(outputs.sizes)}")
        if self.mode == "zeros":
            return
        if window.transposed or window.ceil_mode:
            raise ValueError(f"{self.mode} padding goes with plain convolutions, not with {window!r}")
        for padding, length in zip(window.padding, size, strict=True):  # torch refuses the same
            most = {"reflect": length - 1, "circular": length}.get(self.mode, max(padding))
            if max(padding) > most:
                raise ValueError(f"{self.mode} padding of {max(padding)} pixels is more than an image of {length} has")

    def _worker(self, worker: int, needs: Sequence[Box], moves: list[Move], sends: list[Move]) -> WorkerPlan:
        image, nothing = Box.whole(self.inputs.sizes), Box(tuple(Interval(0, 0) for _ in self.inputs.sizes))
        read = reduce(Box.hull, needs, nothing)
        frame = _with_sources(read, image, self.mode) if read else read
        return WorkerPlan(
            owned=self.inputs.hull(worker),
            need=read,
            frame=frame,
            pads=tuple(p for need in needs for p in need.minus(image)) if self.mode == "zeros" else (),
            keeps=tuple(move for move in moves if move.source == worker),
            sends=tuple(move for move in sends if move.target != worker),
            receives=tuple(move for move in moves if move.source != worker),
            fills=tuple(_fills(frame, image, self.mode)) if frame else (),
        )

    @property
    def moves(self) -> Iterator[Move]:
        """All that changes hands."""
        return (move for worker in self.workers for move in worker.receives)

    @property
    def is_local(self) -> bool:
        """Whether nobody needs anything of anybody."""
        return not any(worker.receives for worker in self.workers)

    def bytes_between(self, pixel: int) -> dict[tuple[int, int], int]:
        """What goes from worker to worker, if a pixel with all its channels has so many bytes.

        >>> from tessera.geometry import Mesh
        >>> image = Partition.grid((1, 4, 6), Mesh(1, 2))
        >>> HaloPlan(image, Window.of(3, padding=1), image).bytes_between(4)
        {(1, 0): 16, (0, 1): 16}
        """
        found: dict[tuple[int, int], int] = {}
        for move in self.moves:
            link = move.source, move.target
            found[link] = found.get(link, 0) + move.taken.size * pixel
        return found

    def __repr__(self) -> str:
        moved = sum(move.taken.size for move in self.moves)
        return f"HaloPlan({self.window!r}, {len(self.workers)} workers, {moved} pixels move)"


def _moves(owners: Owners, target: int, needs: Sequence[Box], image: Box, mode: Mode) -> Iterator[Move]:
    """Where every pixel of a worker's needs comes from; each comes once, from itself if it has it."""
    for need in needs:
        for placed, shift in _pieces(need, image, mode):
            if not any(shift):
                yield from (Move(source, target, box, box) for source, box in owners.of(placed, target))
                continue
            taken = placed.shifted([-step for step in shift])
            yield from (Move(source, target, box, box.shifted(shift)) for source, box in owners.of(taken, target))


def _pieces(need: Box, image: Box, mode: Mode) -> Iterator[tuple[Box, tuple[int, ...]]]:
    """The parts of a need that are pixels of the image, each with how far it lies from where it is taken."""
    if mode == "circular":
        choices = [list(_periods(dim, len(whole))) for dim, whole in zip(need.dims, image.dims, strict=True)]
        for chosen in product(*choices):
            yield Box(tuple(part for part, _ in chosen)), tuple(shift for _, shift in chosen)
        return
    if inside := _with_sources(need, image, mode) & image:
        yield inside, (0,) * len(need.dims)


def _periods(need: Interval, size: int) -> Iterator[tuple[Interval, int]]:
    """A need cut where the image repeats.

    >>> list(_periods(Interval(-1, 5), 4))
    [(Interval(-1:0), -4), (Interval(0:4), 0), (Interval(4:5), 4)]
    """
    for period in range(need.start // size, (need.stop - 1) // size + 1):
        yield need & Interval(period * size, (period + 1) * size), period * size


def _with_sources(need: Box, image: Box, mode: Mode) -> Box:
    """A need and the pixels of the image that its padding repeats."""
    dims = list(need.dims)
    for fill in _fills(need, image, mode):
        dims[fill.axis] = dims[fill.axis].hull(fill.taken)
    return Box(tuple(dims))


def _fills(need: Box, image: Box, mode: Mode) -> Iterator[Fill]:
    """What a need holds before and after the image along each dim, and which pixels that repeats."""
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


def _by(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes))
