"""PyTorch, eager: the backend that has every operator of the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch

from tessera.operators.arrays import Array
from tessera.operators.backends.backend import Prepared, Request, output_gradients
from tessera.operators.expression import bound

NAMES = {"torch": torch, "F": torch.nn.functional}
Tensors = tuple[torch.Tensor, ...]


class TorchBackend:
    """PyTorch as it comes, one operator after the other."""

    def preload(self) -> None:
        # autograd and the profiler import this at their first call: better here, once, than in every launch
        import torch._dynamo  # noqa: F401

    def prepare(self, request: Request, expression: str) -> Prepared:
        torch.manual_seed(request.seed)
        tensors = to_tensors(request)
        return prepared(request, tensors, bound(expression, {**NAMES, **tensors, **request.attributes}))


def to_tensors(request: Request) -> dict[str, torch.Tensor]:
    """The inputs as tensors that keep the arrays' strides; those to differentiate by say so."""
    differentiated = request.differentiated
    found = {}
    for name, array in request.arrays.items():
        tensor = torch.from_numpy(array)
        if request.inputs[name].kind == "float":
            tensor = _of_dtype(tensor, getattr(torch, request.dtype))
        found[name] = tensor.requires_grad_(name in differentiated)
    return found


def _of_dtype(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The same numbers with the same strides; `to` would close gaps."""
    if tensor.dtype == dtype:
        return tensor
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=dtype).copy_(tensor)


def prepared(request: Request, tensors: Mapping[str, torch.Tensor], forward: Callable[[], Any]) -> Prepared:
    """A pass around any forward callable. Backward starts from given output gradients: no loss, no `.grad`."""
    result = forward()
    outputs = tuple(to_array(leaf) for leaf in leaves(result))
    views = lie_within(leaves(result), tensors.values())
    if request.which == "forward":
        return Prepared(call=forward, outputs=outputs, gradients={}, shared=views)
    names = request.differentiated
    inputs = tuple(tensors[name] for name in names)
    given = output_gradients(outputs)
    floats = [
        leaf for leaf in leaves(result) if torch.is_tensor(leaf) and (leaf.is_floating_point() or leaf.is_complex())
    ]
    roots = [number for number, leaf in enumerate(floats) if leaf.requires_grad]
    weights = [torch.from_numpy(given[number]).to(floats[number].dtype) for number in roots]
    ends = [floats[number] for number in roots]

    def backward() -> Any:
        return torch.autograd.grad(ends, inputs, weights, retain_graph=True, allow_unused=True)

    def both() -> Any:
        made = [leaf for leaf in leaves(forward()) if torch.is_tensor(leaf) and leaf.requires_grad]
        return torch.autograd.grad(made, inputs, weights, allow_unused=True)

    found = backward()
    handed_on = lie_within([gradient for gradient in found if gradient is not None], weights)
    gradients = {name: to_array(gradient) for name, gradient in zip(names, found, strict=True) if gradient is not None}
    return Prepared(
        call=backward if request.which == "backward" else both,
        outputs=outputs,
        gradients=gradients,
        output_gradients=tuple(g if n in roots else np.zeros_like(g) for n, g in enumerate(given)),
        shared=handed_on and (views or request.which == "backward"),
    )


def lie_within(made: Iterable[Any], given: Iterable[torch.Tensor]) -> bool:
    """Whether all of some results lie in the memory of some tensors."""
    storages = [tensor.untyped_storage() for tensor in given if tensor.layout == torch.strided]
    spans = [(storage.data_ptr(), storage.data_ptr() + storage.nbytes()) for storage in storages]
    found = [_address(leaf) for leaf in made]
    return bool(found) and all(any(start <= place < end for start, end in spans) for place in found)


def _address(leaf: Any) -> int:
    if torch.is_tensor(leaf):
        return leaf.data_ptr() if leaf.layout == torch.strided else 0
    return int(leaf.ctypes.data) if isinstance(leaf, np.ndarray) else 0


def leaves(result: Any) -> tuple[Any, ...]:
    """Every tensor or number of a result, however it is nested."""
    if isinstance(result, list | tuple):
        return tuple(leaf for part in result for leaf in leaves(part))
    return () if result is None else (result,)


def to_array(leaf: Any) -> Array:
    """A result as an array; 16-bit floats become float32, which holds them exactly."""
    if not torch.is_tensor(leaf):
        return np.asarray(leaf)
    plain = leaf.detach()
    if plain.is_quantized:
        plain = plain.dequantize()
    if plain.layout != torch.strided:
        plain = plain.to_dense()
    if plain.dtype in (torch.bfloat16, torch.float16):
        plain = plain.float()
    return plain.numpy(force=True).copy()
