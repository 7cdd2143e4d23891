"""Sums over ranks of every dtype, by libraries that each add only some of them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tessera.errors import TesseraError

# What each dtype is added in. Short floats lose less in float32; short integers wrap around as torch's own do.
ADDED_IN = {
    torch.float64: torch.float64,
    torch.float32: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float16: torch.float32,
    torch.int64: torch.int64,
    torch.int32: torch.int32,
    torch.int16: torch.int32,
    torch.int8: torch.int32,
    torch.uint8: torch.int32,
}


def sum_in_place(values: Tensor, add: Callable[[Tensor], object]) -> None:
    """Let `add` replace contiguous numbers by their sums over the ranks; complex numbers are two of them each."""
    plain = torch.view_as_real(values.detach()) if values.is_complex() else values.detach()
    if plain.dtype not in ADDED_IN:
        names = [str(dtype).removeprefix("torch.") for dtype in (*ADDED_IN, "complex")]
        raise TesseraError("ranks add numbers", got=str(values.dtype).removeprefix("torch."), allowed=names)
    summed = plain.to(ADDED_IN[plain.dtype]).contiguous()
    add(summed)
    if summed is not plain:
        plain.copy_(summed)
