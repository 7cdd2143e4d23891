"""A real operator, and the same slowed by a planted share: extra work on the same buffers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from tessera.measure.interleave import sample_interleaved

SIZE = 1024


def make_work(extra: int = 0) -> Callable[[], object]:
    """`torch.add` of two 1024 x 1024 matrices into a third; then of their first `extra` elements once more."""
    torch.set_num_threads(1)
    source = torch.Generator().manual_seed(0)
    a, b = (torch.rand(SIZE, SIZE, generator=source) for _ in range(2))
    out = torch.empty_like(a)
    return slowed(a, b, out, extra)


def slowed(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, extra: int) -> Callable[[], object]:
    add = torch.add
    if not extra:
        return lambda: add(a, b, out=out)
    # through NumPy, whose calls cost a fifth of torch's: the plant is then work, and not the price of a call
    more, part = np.add, [t.view(-1)[:extra].numpy() for t in (a, b, out)]

    def both() -> None:
        add(a, b, out=out)
        more(part[0], part[1], part[2])

    return both


def pair(extra: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """The work and the slowed work on the very same buffers."""
    torch.set_num_threads(1)
    a, b = torch.rand(SIZE, SIZE), torch.rand(SIZE, SIZE)
    out = torch.empty_like(a)
    return slowed(a, b, out, 0), slowed(a, b, out, extra)


def plant(share: float) -> tuple[int, float]:
    """How many extra elements slow the work by `share`, by bisection, and the share that was then measured."""
    if not share:
        return 0, 0.0
    low, high = 0, SIZE * SIZE // 4
    for _ in range(9):
        middle = (low + high) // 2
        if measured(middle, 0.5) < share:
            low = middle
        else:
            high = middle
    extra = (low + high) // 2
    return extra, measured(extra, 4.0)


def measured(extra: int, seconds: float) -> float:
    base, more = pair(extra)
    return (
        sample_interleaved({"base": base, "more": more}, budget=seconds, target=0.0002).ratio("more", "base").value - 1
    )
