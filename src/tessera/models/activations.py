"""The bytes of all tensors that are made while something runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class ActivationBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the memory of every result that is new: not of views, and not of what is changed in place."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {_storage(t) for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        if func is torch.ops.aten.native_batch_norm.default and not args[5]:
            # Outside training the two tensors for the backward pass are empty, but not on the meta device.
            made = [result[0]]
        else:
            made = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
        self.total += sum(t.untyped_storage().nbytes() for t in made if _storage(t) not in given)
        return result


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
