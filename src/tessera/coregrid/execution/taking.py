"""Takes sticks by number: every stick of an output is one of the input, or zeros, wherever it lies."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from tessera.coregrid.device.storage import Shards
from tessera.coregrid.planning.ledger import Ledger
from tessera.coregrid.planning.sticks import Ints


def take(source: Shards, target: Shards, row: int, sticks: Ints) -> tuple[Tensor, Ledger]:
    """The sticks that a row of cores of the target asks for (-1 for zeros), as float32, and what had to move."""
    core = target.core(row, 0)
    found = torch.zeros(len(sticks), source.width)
    moved = Ledger()
    owners = np.where(sticks >= 0, sticks // source.height, -1)
    for owner in np.unique(owners[owners >= 0]).tolist():
        places = np.flatnonzero(owners == owner)
        wanted = torch.from_numpy(sticks[places] - owner * source.height)
        part = source.numbers(owner, 0).index_select(0, wanted)
        found.index_copy_(0, torch.from_numpy(places), part.float())
        size = len(places) * source.matrix.dtype.row_bytes(source.width)
        moved += Ledger(local=size) if source.core(owner, 0) == core else Ledger(remote=size)
    return found, moved
