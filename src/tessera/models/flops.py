"""Count the parameters, FLOPs and bytes of a network.

The network runs on the meta device, where tensors have shapes but no values. Torch's `FlopCounterMode` counts every
convolution and matrix product that is dispatched, without rules per layer type and without tracing. A multiply-add
counts as two FLOPs; normalisation, activation, pooling and additions are not counted, as in published figures.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tessera.errors import TesseraError, get_first_line

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """Parameters of a network, and FLOPs and bytes of one forward pass over a batch of `input_shape`.

    `weight_bytes` includes parameters and buffers. `activation_bytes` is the sum over all tensors that an eager pass
    creates, which is the number of bytes written if no operators are fused. It is not the peak memory.
    """

    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    dtype: str
    params: int
    flops: int
    weight_bytes: int
    activation_bytes: int

    @property
    def macs(self) -> int:
        """Number of multiply-adds: half the FLOPs."""
        return self.flops // 2


def model_info(
    name_or_spec: str, *, image_size: int | None = None, batch_size: int = 1, dtype: str = "float32", **options: Any
) -> ModelInfo:
    """Count parameters, FLOPs and bytes of a model by name, without allocating its weights.

    Images are square; `image_size` defaults to the image size of the model.

    >>> info = model_info("resnet50")
    >>> f"{info.params:,} parameters, {info.macs / 1e9:.2f} GMACs"
    '25,557,032 parameters, 4.09 GMACs'
    """
    from tessera.models.registry import build_layers, get_image_size

    if image_size is None:
        image_size = get_image_size(name_or_spec)
    if image_size < 1 or batch_size < 1:
        raise TesseraError(
            "image_size and batch_size must be positive", got=(image_size, batch_size), allowed="1 or more"
        )
    module = build_layers(name_or_spec, **options).eval()
    channels = int(options.get("in_channels", 3))
    return compute_model_info(module, (batch_size, channels, image_size, image_size), dtype=dtype)


def compute_model_info(module: nn.Module, input_shape: tuple[int, ...], *, dtype: str = "float32") -> ModelInfo:
    """Count parameters, FLOPs and bytes of a module for an input shape.

    The module is not modified and may be on any device.
    """
    import torch
    from torch.func import functional_call
    from torch.utils.flop_counter import FlopCounterMode

    from tessera.models.activations import ActivationBytes

    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype) or not kind.is_floating_point:
        raise TesseraError("unknown dtype", got=dtype, allowed=["float32", "float64", "bfloat16", "float16"])
    state = {name: _to_meta(t, kind) for name, t in (*module.named_parameters(), *module.named_buffers())}
    flops, activations = FlopCounterMode(display=False), ActivationBytes()
    image = torch.empty(input_shape, dtype=kind, device="meta")
    try:
        with torch.no_grad(), flops, activations:
            output = functional_call(copy_sharing_weights(module), state, (image,))
    except Exception as error:  # the user's module may raise any exception
        raise TesseraError(
            f"the forward pass of the model failed: {get_first_line(error)}", got=f"input of shape {tuple(input_shape)}"
        ) from None
    shape = tuple(output.shape) if isinstance(output, torch.Tensor) else ()
    return ModelInfo(
        input_shape=tuple(input_shape),
        output_shape=shape,
        dtype=dtype,
        params=sum(p.numel() for p in module.parameters()),
        flops=flops.get_total_flops(),
        weight_bytes=sum(t.nbytes for t in state.values()),
        activation_bytes=activations.total,
    )


def copy_sharing_weights(module: nn.Module) -> nn.Module:
    """Return a copy that shares the module's weights and buffers; attributes set by a forward pass stay in the copy."""
    shared = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    try:
        return copy.deepcopy(module, shared)  # deepcopy treats objects in its memo as already copied
    except Exception:  # the module has an attribute that cannot be copied
        return module


def _to_meta(tensor: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    import torch

    return torch.empty_like(tensor, dtype=kind if tensor.is_floating_point() else None, device="meta")
