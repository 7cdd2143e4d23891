"""Ratios of times as a plot and a table show them: on a logarithmic axis around one."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

CLOSE = 100.0  # within this range the axis has 1, 2 and 5 of each power of ten, beyond it the powers alone


def ratio_axis(values: Iterable[float]) -> dict[str, Any]:
    """A logarithmic axis above the plot whose every tick is a number of times.

    >>> ratio_axis([0.4, 3.0])["ticktext"]
    ['0.2x', '0.5x', '1x', '2x', '5x']
    """
    known = [value for value in values if 0 < value < math.inf] or [1.0]
    low, high = min(1.0, *known), max(1.0, *known)
    steps = (1, 2, 5) if high / low < CLOSE else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**power for power in powers for step in steps]
    shown = [tick for tick in ticks if low / 2.5 <= tick <= high * 2.5]
    return {"side": "top", "type": "log", "tickangle": 0, "tickvals": shown, "ticktext": [times(t, "g") for t in shown]}


def even_line() -> dict[str, Any]:
    """The line at which both take as long."""
    line = {"color": "var(--muted)", "width": 1, "dash": "dot"}
    return {"type": "line", "x0": 1, "x1": 1, "yref": "paper", "y0": 0, "y1": 1, "line": line}


def times(ratio: float, form: str = ".2f") -> str:
    """A number of times; a small one keeps its digits.

    >>> times(2.0), times(0.00276)
    ('2.00x', '0.0028x')
    """
    return f"{ratio:{form}}x" if ratio >= 0.1 or form != ".2f" else f"{ratio:.2g}x"
