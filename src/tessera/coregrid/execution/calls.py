"""Calls on fixed places of memory, made once and repeated."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial


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
        self._kept: list[Callable[[], object]] = []

    def do(self, call: Callable[..., object], *args: object, **named: object) -> None:
        """Make a call that only reads and writes the memories of a device."""
        call(*args, **named)
        if self._keep:
            self._kept.append(partial(call, *args, **named))

    def repeat(self) -> None:
        """Make all calls again, in their order."""
        for call in self._kept:
            call()
