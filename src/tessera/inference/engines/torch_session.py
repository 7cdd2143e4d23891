"""What the engines of torch share: a module that is called, on tensors that share the memory of arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from tessera.errors import Refused
from tessera.inference.arrays import Array
from tessera.inference.engines.engine import Layout, OneAtATime, Step


class TorchSession(OneAtATime):
    """A module at work, outside of autograd."""

    def __init__(self, call: Callable[[Tensor], Any], *, compute: str, layout: Layout) -> None:
        self._call, self.compute, self.layout = call, compute, layout
        self._format = torch.channels_last if layout == "NHWC" else torch.contiguous_format

    def input(self, batch: Array) -> Tensor:
        return torch.from_numpy(batch).contiguous(memory_format=self._format)

    def run(self, held: Tensor) -> Any:
        with torch.no_grad():
            return self._call(held)

    def outputs(self, result: Any) -> tuple[Array, ...]:
        return as_arrays(result)

    def profile(self, held: Tensor, repeats: int) -> list[Step]:
        raise Refused("an engine of torch does not time its own operators", do="use onnxruntime or openvino")

    def close(self) -> None:
        del self._call


def as_arrays(result: Any) -> tuple[Array, ...]:
    """All tensors that a network gives, in float32."""
    return tuple(leaf.float().numpy() for leaf in tree_leaves(result) if isinstance(leaf, Tensor))
