"""Element-wise operations of one or two tensors, normalisations, and reductions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional as F

from tessera.coregrid.activations import ACTIVATIONS, UnaryWithParam, apply_activation, normalise_activation
from tessera.coregrid.device.tensors import Tensor
from tessera.coregrid.formats import DataType, Layout
from tessera.coregrid.memory_config import MemoryConfig
from tessera.coregrid.operations.values import load_values, refuse_unsupported, store_result
from tessera.errors import TesseraError

Operand = Tensor | float
Activations = Sequence[UnaryWithParam | str] | None
BINARY_OPERATIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": torch.add,
    "div": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "mul": torch.mul,
    "multiply": torch.mul,
    "sub": torch.sub,
    "subtract": torch.sub,
}

# Arguments of ttnn's group norm that arrange the work of the cores.
GROUP_NORM_NO_EFFECT = (
    "core_grid",
    "inplace",
    "input_mask",
    "negative_mask",
    "num_out_blocks",
    "reciprocals",
    "use_welford",
)


def make_unary(name: str) -> Callable[..., Tensor]:
    """Return the operation of an activation, with ttnn's arguments; its parameters may be positional or named."""
    compute = ACTIVATIONS[name]
    known = [*inspect.signature(compute).parameters][1:]

    def apply(
        input_tensor: Tensor,
        *parameters: float,
        memory_config: MemoryConfig | None = None,
        dtype: DataType | None = None,
        fast_and_approximate_mode: bool = False,
        **options: Any,
    ) -> Tensor:
        if len(parameters) > len(known):
            raise TesseraError(f"{name} has too many parameters", got=parameters, allowed=known or "none")
        named = dict(zip(known, parameters, strict=False))
        named |= {key: options.pop(key) for key in known if key in options and key not in named}
        refuse_unsupported(name, options, ("vector_mode",))
        values = load_values(input_tensor).clone()
        if name == "gelu":
            apply_activation(values, name, approximate=fast_and_approximate_mode)
        else:
            compute(values, **named)
        return store_result(values, input_tensor, dtype=dtype, memory_config=memory_config)

    apply.__name__, apply.__doc__ = name, f"Return `{name}` of every value."
    return apply


def make_binary(name: str) -> Callable[..., Tensor]:
    """Return an operation of two tensors, or of a tensor and a number, with ttnn's arguments."""
    compute = BINARY_OPERATIONS[name]

    def apply(
        input_tensor_a: Tensor,
        input_tensor_b: Operand,
        *,
        memory_config: MemoryConfig | None = None,
        dtype: DataType | None = None,
        activations: Activations = (),
        input_tensor_a_activations: Activations = (),
        input_tensor_b_activations: Activations = (),
        **options: Any,
    ) -> Tensor:
        refuse_unsupported(name, options, ("use_legacy", "fast_and_approximate_mode"))
        left = apply_all(load_values(input_tensor_a), input_tensor_a_activations)
        other = input_tensor_b
        right = load_values(other) if isinstance(other, Tensor) else torch.tensor(float(other))
        right = apply_all(right, input_tensor_b_activations)
        try:
            values = compute(left, right)
        except RuntimeError as error:
            raise TesseraError(
                f"the tensors cannot be combined: {error}", got=f"{input_tensor_a} and {input_tensor_b}"
            ) from None
        values = apply_all(values, activations)
        return store_result(values, input_tensor_a, dtype=dtype, memory_config=memory_config)

    apply.__name__, apply.__doc__ = name, f"Return the element-wise `{name}` of two tensors, which are broadcast."
    return apply


def apply_all(values: torch.Tensor, activations: Activations) -> torch.Tensor:
    """Return the values after all activations, one after the other."""
    for activation in activations or ():
        values = values.clone()
        apply_activation(values, normalise_activation(activation))
    return values


def softmax(
    input_tensor: Tensor, dim: int = -1, *, memory_config: MemoryConfig | None = None, **options: Any
) -> Tensor:
    """Return the softmax along a dim."""
    refuse_unsupported("softmax", options, ("numeric_stable",))
    return store_result(load_values(input_tensor).softmax(dim), input_tensor, memory_config=memory_config)


def mean(input_tensor: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = True, **options: Any) -> Tensor:
    """Return the mean along dims (default: all), times `scalar` (default: 1)."""
    return _reduce(torch.mean, input_tensor, dim, keepdim, **options)


def sum(  # ttnn's name
    input_tensor: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = True, **options: Any
) -> Tensor:
    """Return the sum along dims (default: all), times `scalar` (default: 1)."""
    return _reduce(torch.sum, input_tensor, dim, keepdim, **options)


def _reduce(
    compute: Callable[..., torch.Tensor],
    tensor: Tensor,
    dim: int | Sequence[int] | None,
    keepdim: bool,
    *,
    memory_config: MemoryConfig | None = None,
    scalar: float = 1.0,
    **options: Any,
) -> Tensor:
    refuse_unsupported(compute.__name__, options)
    dims = tuple(range(len(tensor.shape))) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    values = compute(load_values(tensor), dims, keepdim) * scalar
    return store_result(values, tensor, shape=values.shape or (1,), memory_config=memory_config)


def layer_norm(
    input_tensor: Tensor,
    *,
    epsilon: float = 1e-12,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    residual_input_tensor: Tensor | None = None,
    memory_config: MemoryConfig | None = None,
    **options: Any,
) -> Tensor:
    """Normalise over the last dim, after adding the residual."""
    refuse_unsupported("layer_norm", options)
    scale, shift = (None if part is None else load_values(part).reshape(-1) for part in (weight, bias))
    values = load_values(input_tensor)
    if residual_input_tensor is not None:
        values = values + load_values(residual_input_tensor)
    values = F.layer_norm(values, (input_tensor.shape[-1],), scale, shift, epsilon)
    return store_result(values, input_tensor, memory_config=memory_config)


def batch_norm(
    input_tensor: Tensor,
    *,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool = False,
    eps: float = 1e-5,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    memory_config: MemoryConfig | None = None,
    **options: Any,
) -> Tensor:
    """Normalise images `(N, C, H, W)` by stored statistics."""
    if training:
        raise TesseraError("batch_norm does not compute statistics", got="training=True", do="set it to False")
    refuse_unsupported("batch_norm", options, ("momentum",))
    centre, spread = load_values(running_mean).reshape(-1), load_values(running_var).reshape(-1)
    scale, shift = (None if part is None else load_values(part).reshape(-1) for part in (weight, bias))
    values = F.batch_norm(load_values(input_tensor), centre, spread, scale, shift, eps=eps)
    return store_result(values, input_tensor, memory_config=memory_config)


def group_norm(
    input_tensor: Tensor,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    memory_config: MemoryConfig | None = None,
    dtype: DataType | None = None,
    output_layout: Layout | None = None,
    **options: Any,
) -> Tensor:
    """Normalise groups of channels of flattened images `(N, 1, H*W, C)`."""
    refuse_unsupported("group_norm", options, GROUP_NORM_NO_EFFECT)
    values = load_values(input_tensor)
    batch, channels = values.shape[0], values.shape[-1]
    images = values.reshape(batch, -1, channels).transpose(1, 2)
    scale, shift = (None if part is None else load_values(part).reshape(-1)[:channels] for part in (weight, bias))
    normed = F.group_norm(images, num_groups, scale, shift, epsilon).transpose(1, 2).reshape(values.shape)
    return store_result(normed, input_tensor, dtype=dtype, layout=output_layout, memory_config=memory_config)


UNARY_OPERATIONS = tuple(ACTIVATIONS)
