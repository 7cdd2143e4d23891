"""Progress of a phased model: bytes written and loaded, phase and pass, for a callback or as text."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TextIO

from tessera.report.figures import format_bytes

TERMINAL_SECONDS, LINE_SECONDS = 0.1, 5.0  # least time between two updates of a terminal, and between two lines


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasedProgress:
    """The state of a phased model: it writes its weights to a store, or runs.

    `done` and `total` are bytes: written of all, or loaded so far and loaded by one pass. `phase` of `phases` is being
    computed in pass `number`, counted from 1.
    """

    stage: Literal["write", "run"]
    done: int
    total: int
    phase: int = 0
    phases: int = 0
    number: int = 0

    def __str__(self) -> str:
        """Return one line of text.

        >>> str(PhasedProgress(stage="run", done=4096, total=8192, phase=1, phases=4, number=2))
        'pass 2, phase 2 of 4: 4.00 KiB loaded, 8.00 KiB a pass'
        """
        if self.stage == "write":
            return f"writing weights: {format_bytes(self.done)} of {format_bytes(self.total)}"
        sizes = f"{format_bytes(self.done)} loaded, {format_bytes(self.total)} a pass"
        return f"pass {self.number}, phase {self.phase + 1} of {self.phases}: {sizes}"


ProgressCallback = Callable[[PhasedProgress], None]


class ProgressPrinter:
    """Prints progress: one line that is rewritten on a terminal, and a line every few seconds otherwise."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._on_terminal = self._stream.isatty()
        self._last = -LINE_SECONDS

    def __call__(self, progress: PhasedProgress) -> None:
        now = time.monotonic()
        if now - self._last >= (TERMINAL_SECONDS if self._on_terminal else LINE_SECONDS):
            self._last = now
            print(f"\r{progress}\x1b[K" if self._on_terminal else progress, end="", file=self._stream)
            print("", end="" if self._on_terminal else "\n", file=self._stream, flush=True)
