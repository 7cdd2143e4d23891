"""A copy of a network on the meta device: its modules and the names of its weights, without their values."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from tessera.errors import TesseraError, get_first_line

BATCH_COUNTER = "num_batches_tracked"  # counter of batch norms: not used for inference, and missing in some files


def copy_to_meta(model: nn.Module, dtype: torch.dtype | None = None) -> nn.Module:
    """Copy a network to the meta device, and convert it to `dtype`; tied weights stay tied.

    Unlike `model.to("meta")`, it keeps the values of non-persistent buffers, which no checkpoint contains.
    """
    memo: dict[int, Tensor] = {}
    for name, value in model.state_dict(keep_vars=True).items():
        if isinstance(value, Tensor) and not name.endswith(BATCH_COUNTER):
            kind = dtype if dtype is not None and value.is_floating_point() else value.dtype
            bare = torch.empty(value.shape, dtype=kind, device="meta")
            memo[id(value)] = nn.Parameter(bare, requires_grad=False) if isinstance(value, nn.Parameter) else bare
    try:
        copied = copy.deepcopy(model, memo)  # the tensors in the memo are used as the copies
    except Exception as error:  # a model may hold any objects
        raise TesseraError(
            f"{type(model).__name__} cannot be copied without its weights: {get_first_line(error)}",
            do="remove objects that cannot be copied (weight_norm: call remove_weight_norm)",
        ) from error
    return copied if dtype is None else copied.to(dtype)
