"""Calls on fixed places of memory, made once and repeated; those of different cores side by side."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tessera.coregrid.execution.threads import side_by_side


class Calls:
    """Makes calls, and keeps them with their arguments if they can be repeated.

    >>> numbers: list[int] = []
    >>> calls = Calls(keep=True)
    >>> calls.do(numbers.append, 3)
    >>> calls.repeat()
    >>> numbers
    [3, 3]
    """

    def __init__(self, *, keep: bool) -> None:
        self._keep = keep
        self._parts: list[list[Callable[[], object]]] = [[]]

    def next_part(self) -> None:
        """What follows touches nothing that the calls before it write: it may be repeated beside them."""
        if self._parts[-1]:
            self._parts.append([])

    def do(self, call: Callable[..., object], *args: object, **named: object) -> None:
        """Make a call that only reads and writes the memories of a device."""
        call(*args, **named)
        if self._keep:
            self._parts[-1].append(partial(call, *args, **named))

    def repeat(self) -> None:
        """Make all calls again: those of a part in their order, the parts on as many threads as torch has."""
        side_by_side(self._parts)
