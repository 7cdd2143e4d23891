"""When the lanes of a core do what: they wait for one another as the buffers demand.

A block is read into a buffer that must be free: with one buffer that is when the block before it was turned into
tiles, with two when the one before that was. The same holds for weights, which are free when they were multiplied
with. All waiting is a maximum of times and all work adds to them. So once every lane that goes on is later by the same
span from one block to the next, and those that rest are behind, it stays so, and the rest of the blocks need not be
gone through one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tessera.coregrid.cost.durations import Durations
from tessera.coregrid.planning.plan import ConvPlan
from tessera.coregrid.planning.sharding import ShardLayout

Note = Callable[[str, str, float, float], None]  # lane, what, from, to
SAME = 1e-9  # relative: growths that differ by less are equal


class Moment(NamedTuple):
    """When each lane is done with what it has, and when the last block but one and the last were used up."""

    read: float
    wrote: float
    sent: float
    done: float
    freed_before: float
    freed: float
    used_before: float
    used: float


class Schedule:
    """The order in which a core goes through the blocks of a plan; one with a short shard has fewer of the height."""

    def __init__(self, plan: ConvPlan, steps: Durations, heights: int | None = None) -> None:
        self.steps, self.blocks = steps, plan.blocks
        self.heights = plan.blocks.height_blocks if heights is None else heights
        self.alone = plan.layout == ShardLayout.HEIGHT
        self.two_acts = plan.config.enable_act_double_buffer
        self.two_weights = plan.config.enable_weights_double_buffer
        self.all_weights = self.alone and plan.blocks.height_blocks > 1  # the buffer holds every row of the kernel

    def run(self, note: Note | None = None) -> float:
        """The time at which all is done; `note` is told of everything that a lane does, else repetition is skipped."""
        halo = self.steps.halo
        if note:
            note("halo", "halo", 0.0, halo)
        at = Moment(*[halo] * 8)
        first = self._height(at, 0, note)

        def height(at: Moment, number: int) -> Moment:
            return self._height(at, number + 1, note)

        last = repeated(first, height, self.heights - 1, skip=note is None)
        return max(last.read, last.wrote, last.sent, last.done)

    def _height(self, at: Moment, height: int, note: Note | None) -> Moment:
        """One block of the height: all its inner blocks, then what completes the output."""
        if not self.alone:
            at = self._gather(at, str(height), note, free=at.freed_before if self.two_acts else at.used)
        ready = at.freed

        def inner(at: Moment, number: int) -> Moment:
            name = f"{height}.{number}"
            if self.alone:
                return self._own(at, name, note, weights=height == 0)
            return self._shared(at, name, note, ready)

        at = repeated(at, inner, self.blocks.inner_blocks, skip=note is None)
        done = at.done + self.steps.finish
        if note:
            note("compute", f"bias {height}", at.done, done)
        return at._replace(done=done)

    def _gather(self, at: Moment, name: str, note: Note | None, free: float) -> Moment:
        """Read windows into a free buffer, and turn them into tiles."""
        begin = max(at.read, free)
        read = begin + self.steps.read
        start = max(at.done, read)
        done = start + self.steps.tilize
        if note:
            note("reader", f"act {name}", begin, read)
            note("compute", f"tilize {name}", start, done)
        return at._replace(read=read, done=done, freed_before=at.freed, freed=done)

    def _own(self, at: Moment, name: str, note: Note | None, weights: bool) -> Moment:
        """HEIGHT: a core gathers, tilizes and multiplies its own block; the weights come with the first height."""
        at = self._gather(at, name, note, free=at.freed_before if self.two_acts else at.freed)
        if weights:
            at = self._weigh(at, name, note, free=at.wrote if self.all_weights else self._free_weights(at))
        return self._multiply(at, name, note, max(at.done, at.wrote))

    def _shared(self, at: Moment, name: str, note: Note | None, ready: float) -> Moment:
        """BLOCK, WIDTH: a block comes round from the core whose turn it is, its weights from global memory."""
        begin = max(at.sent, ready, at.used_before if self.two_acts else at.used)
        sent = begin + self.steps.multicast
        if note:
            note("multicast", f"act {name}", begin, sent)
        at = self._weigh(at._replace(sent=sent), name, note, free=self._free_weights(at))
        return self._multiply(at, name, note, max(at.done, at.sent, at.wrote))

    def _free_weights(self, at: Moment) -> float:
        return at.used_before if self.two_weights else at.used

    def _weigh(self, at: Moment, name: str, note: Note | None, free: float) -> Moment:
        begin = max(at.wrote, free)
        wrote = begin + self.steps.weights
        if note:
            note("writer", f"weights {name}", begin, wrote)
        return at._replace(wrote=wrote)

    def _multiply(self, at: Moment, name: str, note: Note | None, begin: float) -> Moment:
        done = begin + self.steps.matmul
        if note:
            note("compute", f"matmul {name}", begin, done)
        return at._replace(done=done, used_before=at.used, used=done)


def repeated(at: Moment, step: Callable[[Moment, int], Moment], times: int, *, skip: bool) -> Moment:
    """Take a step so many times; with `skip`, the steps after those that repeat are one multiplication."""
    for number in range(times):
        before, at = at, step(at, number)
        left = times - number - 1
        if skip and left and (growth := _growth(before, at)):
            return Moment(
                *(late + left * growth if late > early else late for early, late in zip(before, at, strict=True))
            )
    return at


def _growth(before: Moment, after: Moment) -> float:
    """By how much a step makes every lane later that goes on; 0 if they differ, or if one that rests is ahead."""
    growths = [late - early for early, late in zip(before, after, strict=True)]
    going = [growth for growth in growths if growth > 0]
    if not going or max(going) - min(going) > SAME * max(going):
        return 0.0
    resting = [late for late, growth in zip(after, growths, strict=True) if growth == 0]
    behind = min(late for late, growth in zip(after, growths, strict=True) if growth > 0)
    return going[0] if not resting or max(resting) <= behind else 0.0
