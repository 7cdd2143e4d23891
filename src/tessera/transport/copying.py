"""Copies that are prepared once and made round after round.

For small pieces a call of torch's `copy_` takes longer than the copying: its views are known to be of one shape, one
dtype and no gradient, so NumPy moves them, and where they are contiguous a plain move of memory does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import setitem

import numpy as np
import torch
from torch import Tensor

Copy = Callable[[], object]
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}  # NumPy has all of these


def copy_of(target: Tensor, source: Tensor) -> Copy:
    """What copies a view to another of the same shape and dtype, in memory that stays where it is."""
    target, source = joined_dims(target, source)
    if target.device.type != "cpu":
        return partial(target.copy_, source)
    word = WORDS[target.itemsize]
    ours, theirs = target.view(word).numpy(), source.view(word).numpy()
    if ours.flags.c_contiguous and theirs.flags.c_contiguous:
        return partial(setitem, ours.data.cast("B"), slice(None), theirs.data.cast("B"))
    return partial(np.copyto, ours, theirs)


def joined_dims(target: Tensor, source: Tensor) -> tuple[Tensor, Tensor]:
    """Two views of one shape, with dims joined where both lie in memory as one: a copy then finds its long rows.

    >>> frame, tile = torch.zeros(2, 3, 6, 8), torch.zeros(2, 3, 4, 8)
    >>> [list(view.shape) for view in joined_dims(frame[:, :, 1:5], tile)]
    [[6, 32], [6, 32]]
    """
    shape, strides = [1], [(1, 1)]
    for size, *both in zip(target.shape, target.stride(), source.stride(), strict=True):
        step = (both[0], both[1])
        if size == 1:
            continue
        if shape[-1] == 1:
            shape[-1], strides[-1] = size, step
        elif strides[-1] == (size * step[0], size * step[1]):
            shape[-1], strides[-1] = shape[-1] * size, step
        else:
            shape.append(size)
            strides.append(step)
    ours, theirs = zip(*strides, strict=True)
    return (
        target.as_strided(shape, ours, target.storage_offset()),
        source.as_strided(shape, theirs, source.storage_offset()),
    )
