"""Count the bytes of all tensors that a forward pass creates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class ActivationBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Dispatch mode that counts the bytes of every new tensor; views and in-place results are not counted."""

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
        inputs = {_get_storage(t) for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        if func is torch.ops.aten.native_batch_norm.default and not args[5]:
            # In evaluation mode the two outputs saved for the backward pass are empty, except on the meta device.
            created = [result[0]]
        else:
            created = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
        self.total += sum(t.untyped_storage().nbytes() for t in created if _get_storage(t) not in inputs)
        return result


def _get_storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
