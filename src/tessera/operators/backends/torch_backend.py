"""Backend for eager PyTorch, which supports every operator of the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch

from tessera.errors import Refused
from tessera.operators.arrays import Array
from tessera.operators.backends.backend import OperatorRequest, PreparedOperator, draw_output_gradients
from tessera.operators.expression import bind_expression

EXPRESSION_NAMES = {"torch": torch, "F": torch.nn.functional}


class TorchBackend:
    """PyTorch in eager mode."""

    def preload(self) -> None:
        # autograd and the profiler import this module at their first call: import it once, before processes are forked
        import torch._dynamo  # noqa: F401

    def prepare(self, request: OperatorRequest, expression: str) -> PreparedOperator:
        torch.manual_seed(request.seed)
        tensors = to_tensors(request)
        names = {**EXPRESSION_NAMES, **tensors, **request.attributes}
        return prepare_passes(request, tensors, bind_expression(expression, names | run_setup(request, names)))


def run_setup(request: OperatorRequest, names: Mapping[str, Any]) -> dict[str, Any]:
    """Evaluate the set-up expressions of an operator once, and return their values by name."""
    values: dict[str, Any] = {}
    with torch.no_grad():
        for name, expression in request.operator.setup.items():
            values[name] = bind_expression(expression, {**names, **values})()
    return values


def to_tensors(request: OperatorRequest) -> dict[str, torch.Tensor]:
    """Convert the inputs to tensors on the device, with the strides of the arrays.

    Differentiated inputs require a gradient.
    """
    differentiated = request.differentiated
    tensors = {}
    for name, array in request.arrays.items():
        tensor = torch.from_numpy(array)
        if request.inputs[name].kind == "float":
            tensor = _cast_keeping_strides(tensor, getattr(torch, request.dtype))
        tensors[name] = _move(tensor, request.device).requires_grad_(name in differentiated)
    return tensors


def _cast_keeping_strides(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Convert a tensor to a dtype and keep its strides; `Tensor.to` would remove gaps between the elements."""
    if tensor.dtype == dtype:
        return tensor
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=dtype).copy_(tensor)


def _move(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """Copy a tensor to a device and keep its strides."""
    if tensor.device == torch.device(device):
        return tensor
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device).copy_(tensor)


def _check_device(leaves: Iterable[Any], request: OperatorRequest) -> None:
    """Raise `Refused` if a result is not on the requested device, as for operators without a tensor as input."""
    for leaf in leaves:
        if torch.is_tensor(leaf) and leaf.device != torch.device(request.device):
            raise Refused(
                f"{request.operator.name} returns its result on another device",
                got=str(leaf.device),
                allowed=request.device,
            )


def prepare_passes(
    request: OperatorRequest, tensors: Mapping[str, torch.Tensor], forward: Callable[[], Any]
) -> PreparedOperator:
    """Prepare the requested pass of a callable `forward`; a backward pass starts from fixed output gradients."""
    result = forward()
    leaves = flatten_leaves(result)
    _check_device(leaves, request)
    outputs = tuple(to_array(leaf) for leaf in leaves)
    views = share_memory(leaves, tensors.values())
    if request.pass_name == "forward":
        return PreparedOperator(call=forward, outputs=outputs, gradients={}, shared=views)
    names = request.differentiated
    inputs = tuple(tensors[name] for name in names)
    drawn = draw_output_gradients(outputs)
    floats = [leaf for leaf in leaves if torch.is_tensor(leaf) and (leaf.is_floating_point() or leaf.is_complex())]
    roots = [number for number, leaf in enumerate(floats) if leaf.requires_grad]
    if not roots:
        raise Refused(f"no output of {request.operator.name} has a gradient", got=request.pass_name, allowed="forward")
    weights = [torch.from_numpy(drawn[number]).to(floats[number].dtype).to(request.device) for number in roots]
    ends = [floats[number] for number in roots]

    def run_backward() -> Any:
        return torch.autograd.grad(ends, inputs, weights, retain_graph=True, allow_unused=True)

    def run_both() -> Any:
        results = [leaf for leaf in flatten_leaves(forward()) if torch.is_tensor(leaf) and leaf.requires_grad]
        return torch.autograd.grad(results, inputs, weights, allow_unused=True)

    by_name = {name: value for name, value in zip(names, run_backward(), strict=True) if value is not None}
    passed_through = share_memory(by_name.values(), weights)
    return PreparedOperator(
        call=run_backward if request.pass_name == "backward" else run_both,
        outputs=outputs,
        gradients={name: to_array(gradient) for name, gradient in by_name.items()},
        output_gradients=tuple(g if n in roots else np.zeros_like(g) for n, g in enumerate(drawn)),
        shared=passed_through and (views or request.pass_name == "backward"),
    )


def share_memory(results: Iterable[Any], tensors: Iterable[torch.Tensor]) -> bool:
    """Return whether all results are views of the memory of the tensors."""
    storages = [tensor.untyped_storage() for tensor in tensors if tensor.layout == torch.strided]
    spans = [(storage.data_ptr(), storage.data_ptr() + storage.nbytes()) for storage in storages]
    addresses = [_get_address(leaf) for leaf in results]
    return bool(addresses) and all(any(start <= address < end for start, end in spans) for address in addresses)


def _get_address(leaf: Any) -> int:
    if torch.is_tensor(leaf):
        return leaf.data_ptr() if leaf.layout == torch.strided else 0
    return int(leaf.ctypes.data) if isinstance(leaf, np.ndarray) else 0


def flatten_leaves(result: Any) -> tuple[Any, ...]:
    """Return all tensors and numbers of a nested result."""
    if isinstance(result, list | tuple):
        return tuple(leaf for part in result for leaf in flatten_leaves(part))
    return () if result is None else (result,)


def to_array(leaf: Any) -> Array:
    """Convert a tensor or number to NumPy; 16-bit floats become float32, which represents them exactly."""
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
