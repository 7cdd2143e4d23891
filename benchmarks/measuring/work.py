"""A real operator, and the same slowed by a planted share: extra work on the same buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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


def plant(shares: Sequence[float]) -> dict[float, tuple[int, float]]:
    """For each share, the extra elements that slow the work so much, and the share that was then measured.

    Found by a line through the ratios of several sizes, all sampled in turns on the same buffers.
    """
    sizes = [2_000, 8_000, 20_000, 40_000, 70_000, 100_000, 140_000]
    slopes = np.polynomial.Polynomial.fit(sizes, list(measured(sizes, 8.0).values()), 1).convert().coef
    extras = {share: max(1, round((share - slopes[0]) / slopes[1])) for share in shares if share}
    found = measured(list(extras.values()), 8.0)
    return {share: (extras[share], found[extras[share]]) if share else (0, 0.0) for share in shares}


def measured(extras: Sequence[int], seconds: float) -> dict[int, float]:
    """By how much each number of extra elements slows the work."""
    a, b = torch.rand(SIZE, SIZE), torch.rand(SIZE, SIZE)
    out = torch.empty_like(a)
    works = {str(extra): slowed(a, b, out, extra) for extra in (0, *extras)}
    found = sample_interleaved(works, budget=seconds, target=0.0002)
    return {extra: found.ratio(str(extra), "0").value - 1 for extra in extras}
