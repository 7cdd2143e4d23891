"""How fast this host moves bytes between its cores and its main memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from tessera.machine.repetition import Best, best_rate

SMALLEST, LARGEST = 64 << 20, 512 << 20


def array_bytes() -> int:
    """The size of one array: four times the last-level cache, so that little of it is left there."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    texts = [path.read_text().strip() for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    sizes = [int(text[:-1]) * units[text[-1]] for text in texts if text[-1:] in units]
    # Three arrays may take an eighth of the memory that is free now.
    room = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 24
    return max(SMALLEST, min(4 * max(sizes, default=0), LARGEST, room))


def memory_rate(kind: Literal["copy", "triad"], threads: int, *, size: int, budget: float) -> Best:
    """Bytes/s of arrays of `size` bytes: `copy` counts the bytes copied, `triad` (a = b + s * c) all arrays.

    The lines a processor fetches only to overwrite them are not counted, as is the custom.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        b, c = (torch.ones(size // 4) for _ in range(2))
        if kind == "copy":
            return best_rate(lambda: c.copy_(b), float(size), budget=budget)
        a = torch.zeros(size // 4)
        return best_rate(lambda: torch.add(b, c, alpha=0.5, out=a), 3.0 * size, budget=budget)
    finally:
        torch.set_num_threads(before)
