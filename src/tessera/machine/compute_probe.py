"""How fast this host multiplies matrices, by number format and number of threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tessera.machine.repetition import Best, best_rate, seconds_of

GEMM_DTYPES = ("float32", "float64", "bfloat16", "float16", "int8")
SIZES = (64, 128, 256, 512, 1024, 2048)
# One repetition at most; formats without hardware support are a hundred times slower and get small matrices.
LONGEST_CALL = 0.25


def gemm_rate(dtype: str, threads: int, *, budget: float) -> tuple[Best, int] | None:
    """FLOP/s of a square matrix product with `threads` threads, and the size used; None if it cannot be done here."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        size = 0
        for size in SIZES:
            product = _product(dtype, size)
            if product is None:
                return None
            product()  # the first call packs, allocates and wakes threads
            if seconds_of(product) * 8 > LONGEST_CALL:
                break  # the next size is eight times the work
        assert product is not None
        return best_rate(product, 2.0 * size**3, budget=budget), size
    finally:
        torch.set_num_threads(before)


def _product(dtype: str, size: int) -> Callable[[], object] | None:
    """A call that multiplies two `size` x `size` matrices, or None where torch has no such product."""
    import torch

    kind: Any = getattr(torch, dtype)
    if dtype == "int8":
        multiply = getattr(torch, "_int_mm", None)  # the only int8 product with int32 sums that torch offers
        if multiply is None:
            return None
        a, b = (torch.randint(-100, 100, (size, size), dtype=kind) for _ in range(2))
        call = lambda: multiply(a, b)  # noqa: E731
    else:
        a, b = (torch.randn(size, size).to(kind) for _ in range(2))
        out = torch.empty(size, size, dtype=kind)
        call = lambda: torch.mm(a, b, out=out)  # noqa: E731
    try:
        call()
    except (RuntimeError, NotImplementedError):
        return None
    return call
