"""Tensors of a network on accelerators: those that are not streamed, and activations between devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from tessera.errors import TesseraError
from tessera.phased.paging.weight_table import METADATA, StreamedModule


def move_unstreamed(network: nn.Module, device: torch.device) -> None:
    """Move the parameters and buffers that always stay in memory to a device."""
    nested = {id(part) for own in network.modules() if isinstance(own, StreamedModule) for part in own.modules()}
    for module in network.modules():
        if id(module) in nested:
            continue
        tables: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
        for table in tables:
            for name, value in list(table.items()):
                if isinstance(value, Tensor) and not hasattr(value, "slot"):
                    moved = value.to(device)
                    table[name] = nn.Parameter(moved, requires_grad=False) if isinstance(value, nn.Parameter) else moved


def hand_over_activations(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function in which tensors are copied between devices where an operation has tensors of several devices.

    The operation is computed on the device of its weight; without a weight, and if it writes into a tensor, on the
    device of its first tensor or of `out`.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        with _HandOver():
            return function(*args, **kwargs)

    return call


class _HandOver(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in METADATA or func in _WITHIN_DEVICES:
            return func(*args, **kwargs)
        tensors = [value for value in pytree.tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
        if len({tensor.device for tensor in tensors}) > 1:
            target = _choose_device(func, tensors, args, kwargs)
            args, kwargs = pytree.tree_map_only(Tensor, lambda value: _copy_to(value, target), (args, kwargs))
        return func(*args, **kwargs)


# Functions that copy between devices, or do not read their tensors.
_WITHIN_DEVICES = {Tensor.to, Tensor.cpu, Tensor.copy_, Tensor.type_as, Tensor.device.__get__}


def _choose_device(func: Any, tensors: list[Tensor], args: Any, kwargs: dict[str, Any]) -> torch.device:
    name = getattr(func, "__name__", "")
    writes = (name.endswith("_") and not name.endswith("__")) or name.startswith("__i") or name == "__setitem__"
    targets = kwargs.get("out") if kwargs.get("out") is not None else args[:1] if writes else None
    written = {value.device for value in pytree.tree_leaves(targets) if isinstance(value, Tensor)}
    if len(written) > 1:
        raise TesseraError(
            f"{name} writes into tensors of several devices",
            got=", ".join(sorted(map(str, written))),
            do="move the tensors to one device, or use one `device`",
        )
    if written:
        return written.pop()
    weights = [tensor for tensor in tensors if hasattr(tensor, "source") or hasattr(tensor, "slot")]
    return tensors[0].device if writes or not weights else weights[0].device


def _copy_to(tensor: Tensor, device: torch.device) -> Tensor:
    with torch._C.DisableTorchFunctionSubclass():
        if tensor.device == device or (tensor.dim() == 0 and tensor.device.type == "cpu"):
            return tensor
    return tensor.to(device)
