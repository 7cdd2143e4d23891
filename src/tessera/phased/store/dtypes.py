"""In which form weights are stored, and in which they are computed with."""

from __future__ import annotations

from collections.abc import Sequence

import torch

# 16-bit arithmetic without hardware for it is tens of times slower than float32 on a host, so that 16 bits are a form
# in which weights are kept and moved: what they are computed with is wider.
WIDENED = {torch.float16: torch.float32, torch.bfloat16: torch.float32}


def computed_dtype(stored: torch.dtype) -> torch.dtype:
    """The dtype that weights of a stored dtype are computed in."""
    return WIDENED.get(stored, stored)


def arithmetic(stored: Sequence[torch.dtype]) -> str:
    """How weights are kept and computed with, for a record.

    >>> arithmetic([torch.float16, torch.float16]), arithmetic([torch.float32])
    ('float16 stored and streamed, float32 computed', 'float32')
    """
    texts = []
    for dtype in dict.fromkeys(dtype for dtype in stored if dtype.is_floating_point):
        name, computed = str(dtype).removeprefix("torch."), str(computed_dtype(dtype)).removeprefix("torch.")
        texts.append(name if name == computed else f"{name} stored and streamed, {computed} computed")
    return "; ".join(texts)
