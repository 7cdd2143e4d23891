"""How fast this host multiplies matrices, by number format and number of threads."""

from __future__ import annotations

from collections.abc import Callable

from tessera.machine.repetition import Best, best_rate, seconds_of

GEMM_DTYPES = ("float32", "float64", "bfloat16", "float16", "int8")
SIZES = (64, 128, 256, 512, 1024, 2048)
# One repetition at most; formats without hardware support are a hundred times slower and get small matrices.
LONGEST_CALL = 0.1


def gemm_rate(dtype: str, threads: int, *, budget: float, smallest: int = 0) -> tuple[Best, int] | None:
    """FLOP/s of a square matrix product with `threads` threads, and its size; None if torch has none here.

    The size is the largest that takes no longer than LONGEST_CALL, and at least `smallest`: what fewer
    threads had, so that on a busy machine a preempted trial cannot make it tiny.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for size in (s for s in SIZES if s >= smallest):
            product = _product(dtype, size)
            if product is None:
                return None
            trial = min(seconds_of(product) for _ in range(3))
            if size == SIZES[-1] or trial * 8 > LONGEST_CALL:  # the next size is eight times the work
                return best_rate(product, 2.0 * size**3, budget=budget), size
        raise AssertionError("the last size always returns")
    finally:
        torch.set_num_threads(before)


def _product(dtype: str, size: int) -> Callable[[], object] | None:
    """A warm call that multiplies two `size` x `size` matrices; None where torch has no such product."""
    import torch

    kind: torch.dtype = getattr(torch, dtype)
    try:
        if dtype == "int8":
            a, b = (torch.randint(-100, 100, (size, size), dtype=kind) for _ in range(2))
            # The only int8 product with int32 sums that torch offers; it has no public name.
            torch._int_mm(a, b)
            return lambda: torch._int_mm(a, b)
        x, y = (torch.randn(size, size).to(kind) for _ in range(2))
        out = torch.mm(x, y)
        return lambda: torch.mm(x, y, out=out)
    except (AttributeError, NotImplementedError, RuntimeError):
        return None
