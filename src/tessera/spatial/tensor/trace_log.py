"""A log of the operations on split tensors: how each was computed, and the bytes that it moved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from threading import get_ident
from typing import Any, Literal

from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

Way = Literal["split", "moved", "whole"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedOperation:
    """One logged operation.

    `way` is "split" if every rank computed its part, "moved" if the split moved to another dim for it, "whole" if every
    rank computed all of it. `received_bytes` is counted on the busiest rank, `stored_bytes` is the size of this rank's
    result. `note` gives the number of windows that a halo serves.
    """

    name: str
    module: str
    shape: tuple[int, ...]
    way: Way
    received_bytes: int
    stored_bytes: int
    note: str = ""


@dataclass(slots=True)
class OperationLog:
    """Operations in the order of execution, recorded while `active`."""

    active: bool = False
    operations: list[LoggedOperation] = field(default_factory=list)
    modules: list[str] = field(default_factory=list)
    _bytes: int = 0
    _way: Way = "split"
    _note: str = ""

    def mark(self, way: Way) -> None:
        """Set how the current operation is computed."""
        self._way = way

    def note(self, text: str) -> None:
        """Add a note to the current operation."""
        self._note = text

    def count_moves(self, moved: Sequence[int], itemsize: int) -> None:
        """Count the bytes that the busiest rank receives in a transfer."""
        if self.active:
            self._bytes += max(moved) * itemsize

    def count_bytes(self, count: int) -> None:
        if self.active:
            self._bytes += count

    def add(self, func: Any, result: Any) -> None:
        """Log a finished operation."""
        first = result[0] if isinstance(result, tuple | list) and result else result
        local = getattr(first, "local", first)
        self.operations.append(
            LoggedOperation(
                name=str(func).removeprefix("aten.").split(".")[0],
                module=self.modules[-1] if self.modules else "",
                shape=tuple(getattr(first, "shape", ())),
                way=self._way,
                received_bytes=self._bytes,
                stored_bytes=prod(getattr(local, "shape", (0,))) * getattr(local, "itemsize", 0),
                note=self._note,
            )
        )
        self._bytes, self._way, self._note = 0, "split", ""

    def take(self) -> list[LoggedOperation]:
        """Return the logged operations and forget them."""
        operations, self.operations = self.operations, []
        return operations

    @contextmanager
    def record(self, model: nn.Module) -> Iterator[None]:
        """Log the operations of a model with the names of its modules."""
        names = {id(module): name for name, module in model.named_modules()}
        thread = get_ident()  # the hooks are global: they see other models, and other ranks that are threads

        def enter(module: nn.Module, args: Any) -> None:
            if id(module) in names and get_ident() == thread:
                self.modules.append(names[id(module)])

        def leave(module: nn.Module, args: Any, output: Any) -> None:
            if id(module) in names and get_ident() == thread and self.modules:
                self.modules.pop()

        handles = [register_module_forward_pre_hook(enter), register_module_forward_hook(leave)]
        self.active, self.operations, self.modules, self._note = True, [], [], ""
        self._bytes, self._way = 0, "split"  # an operation before, which was not logged, may have set them
        try:
            yield
        finally:
            self.active, self.modules = False, []
            for handle in handles:
                handle.remove()
