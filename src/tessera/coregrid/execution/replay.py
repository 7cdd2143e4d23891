"""Record the torch calls of a program, and replay them while buffer addresses are unchanged."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial

from tessera.coregrid.device.device import Device
from tessera.coregrid.planning.ledger import Ledger


@dataclass(frozen=True, slots=True)
class _Recording:
    """Recorded calls, valid for these buffer addresses, and the bytes that the calls move."""

    addresses: Hashable
    calls: CallRecorder
    ledger: Ledger


def run_or_replay(
    device: Device, key: Hashable, addresses: Hashable, record: Callable[[CallRecorder], Ledger], *, can_replay: bool
) -> Ledger:
    """Run a part of a program, or replay its recorded calls if the buffer addresses are unchanged.

    Returns the bytes moved. For small blocks, computing addresses takes most of the time. A float32 program only makes
    calls on fixed addresses, so its calls can be recorded once and replayed.
    """
    if not can_replay:
        return record(CallRecorder(keep=False))
    recording: _Recording | None = device.programs.get(key)
    if recording is None or recording.addresses != addresses:
        calls = CallRecorder(keep=True)
        device.programs[key] = recording = _Recording(addresses, calls, record(calls))
    else:
        recording.calls.replay()
    return recording.ledger


class CallRecorder:
    """Recorder of function calls: makes every call at once and, with `keep`, records the call for replay.

    >>> numbers: list[int] = []
    >>> calls = CallRecorder(keep=True)
    >>> calls.call(numbers.append, 3)
    >>> calls.replay()
    >>> numbers
    [3, 3]
    """

    def __init__(self, *, keep: bool) -> None:
        self._keep = keep
        self._kept: list[Callable[[], object]] = []

    def call(self, call: Callable[..., object], *args: object, **named: object) -> None:
        """Make a call, and record it with `keep`. The call must only read and write the memories of a device."""
        call(*args, **named)
        if self._keep:
            self._kept.append(partial(call, *args, **named))

    def replay(self) -> None:
        """Make all recorded calls again, in order."""
        for call in self._kept:
            call()
