"""Parts of a program that need not be worked out again while all buffers lie where they lay."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from tessera.coregrid.device.device import Device
from tessera.coregrid.execution.calls import Calls
from tessera.coregrid.execution.program import Program
from tessera.coregrid.planning.ledger import Ledger


@dataclass(frozen=True, slots=True)
class _Known:
    where: Hashable
    calls: Calls
    moved: Ledger


def repeated(device: Device, program: Program, part: str, where: Hashable, make: Callable[[Calls], Ledger]) -> Ledger:
    """Run a part of a program, and say what moved.

    Most of the time of a small block goes into finding its places. A program in float32 does nothing but calls on
    fixed places, so if all buffers lie (`where`) as they lay the last time, those calls are simply made again.
    """
    if not program.is_fixed:
        return make(Calls(keep=False))
    key = ("calls", id(program), part)
    known: _Known | None = device.programs.get(key)
    if known is None or known.where != where:
        calls = Calls(keep=True)
        device.programs[key] = known = _Known(where, calls, make(calls))
    else:
        known.calls.repeat()
    return known.moved
