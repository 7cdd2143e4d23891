"""The workload: `torch.add`, and `torch.add` slowed by extra work on the same buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from tessera.measure.interleave import sample_interleaved

MATRIX_SIZE = 1024


def build_work(extra: int = 0) -> Callable[[], object]:
    """Return a function that adds two 1024 x 1024 matrices, and then adds their first `extra` elements again."""
    torch.set_num_threads(1)
    source = torch.Generator().manual_seed(0)
    a, b = (torch.rand(MATRIX_SIZE, MATRIX_SIZE, generator=source) for _ in range(2))
    out = torch.empty_like(a)
    return build_slowed(a, b, out, extra)


def build_slowed(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, extra: int) -> Callable[[], object]:
    add = torch.add
    if not extra:
        return lambda: add(a, b, out=out)
    # The extra work uses NumPy, whose call overhead is a fifth of torch's, so that the slowdown is not call overhead.
    more, part = np.add, [t.view(-1)[:extra].numpy() for t in (a, b, out)]

    def add_with_extra_work() -> None:
        add(a, b, out=out)
        more(part[0], part[1], part[2])

    return add_with_extra_work


def build_pair(extra: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return the plain function and the slowed function, on the same buffers."""
    torch.set_num_threads(1)
    a, b = torch.rand(MATRIX_SIZE, MATRIX_SIZE), torch.rand(MATRIX_SIZE, MATRIX_SIZE)
    out = torch.empty_like(a)
    return build_slowed(a, b, out, 0), build_slowed(a, b, out, extra)


def plant_slowdowns(shares: Sequence[float]) -> dict[float, tuple[int, float]]:
    """Return, for each slowdown in `shares`, the number of extra elements that causes it, and the measured slowdown.

    The number of elements comes from a linear fit to the slowdowns of several sizes, interleaved on the same buffers.
    """
    sizes = [2_000, 8_000, 20_000, 40_000, 70_000, 100_000, 140_000]
    slopes = np.polynomial.Polynomial.fit(sizes, list(measure_slowdowns(sizes, 8.0).values()), 1).convert().coef
    extras = {share: max(1, round((share - slopes[0]) / slopes[1])) for share in shares if share}
    slowdowns = measure_slowdowns(list(extras.values()), 8.0)
    return {share: (extras[share], slowdowns[extras[share]]) if share else (0, 0.0) for share in shares}


def measure_slowdowns(extras: Sequence[int], seconds: float) -> dict[int, float]:
    """Return the relative slowdown for each number of extra elements, measured for `seconds` in total."""
    a, b = torch.rand(MATRIX_SIZE, MATRIX_SIZE), torch.rand(MATRIX_SIZE, MATRIX_SIZE)
    out = torch.empty_like(a)
    works = {str(extra): build_slowed(a, b, out, extra) for extra in (0, *extras)}
    interleaved = sample_interleaved(works, budget=seconds, target=0.0002)
    return {extra: interleaved.ratio(str(extra), "0").value - 1 for extra in extras}
