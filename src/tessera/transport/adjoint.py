"""The exchange backward: every move of the plan the other way, and what was copied out is added in."""

from __future__ import annotations

import torch
from torch import Tensor

from tessera.geometry.halo import WorkerPlan
from tessera.transport.filling import Filling
from tessera.transport.layout import Layout, index
from tessera.transport.transport import Strip, Transport


class Adjoint:
    """One rank's side: gradients of what it had received go back, those of what it had sent come in."""

    def __init__(
        self, transport: Transport, mine: WorkerPlan, layout: Layout, dtype: torch.dtype, filling: Filling
    ) -> None:
        self._mine, self._layout, self._filling = mine, layout, filling
        out, into = [move.placed for move in mine.receives], [move.taken for move in mine.sends]
        memory = transport.empty(sum(map(layout.size, out)), dtype)
        leaving = layout.strips(memory, out)
        arriving = layout.strips(memory.new_empty(sum(map(layout.size, into))), into)
        self._connection = transport.connect(
            [Strip(move.source, strip) for move, strip in zip(mine.receives, leaving, strict=True)],
            [Strip(move.target, strip) for move, strip in zip(mine.sends, arriving, strict=True)],
        )
        self._leaving = [(index(mine.frame, box), strip) for box, strip in zip(out, leaving, strict=True)]
        self._arriving = [(index(mine.owned, box), strip) for box, strip in zip(into, arriving, strict=True)]
        self._kept = [(index(mine.owned, move.taken), index(mine.frame, move.placed)) for move in mine.keeps]
        self._keeps_all = len(mine.keeps) == 1 and mine.keeps[0].taken == mine.owned
        self._grad: Tensor | None = None

    def start(self, grad: Tensor) -> None:
        frame = self._frame(grad)
        self._connection.settle()
        for where, strip in self._leaving:
            strip.copy_(self._layout.strip(frame[where]))
        self._connection.start()
        self._grad = self._own(frame)

    def finish(self) -> Tensor:
        grad, self._grad = self._grad, None
        assert grad is not None, "start comes first"
        self._connection.finish()
        for where, strip in self._arriving:
            self._layout.strip(grad[where]).add_(strip)
        return grad

    def _frame(self, grad: Tensor) -> Tensor:
        """The gradient of the frame, from that of the part of it that was read."""
        if not self._filling:
            return grad
        mine = self._mine
        frame = self._layout.tensor(grad.new_zeros(self._layout.size(mine.frame)), mine.frame)
        frame[index(mine.frame, mine.need)].copy_(grad)
        self._filling.fold(frame)
        return frame

    def _own(self, frame: Tensor) -> Tensor:
        """The gradient of the rank's own pixels, as far as it comes from its own frame."""
        if self._keeps_all:
            ((_, where),) = self._kept
            return frame[where].clone(memory_format=self._layout.memory_format(frame.dim()))
        owned = self._mine.owned
        grad = self._layout.tensor(frame.new_zeros(self._layout.size(owned)), owned)
        for here, there in self._kept:
            grad[here].add_(frame[there])
        return grad
