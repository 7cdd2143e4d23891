"""What a network is on paper: parameters, FLOPs of a pass, bytes of its weights and of what it computes.

Counted by running the network on the meta device, where tensors have shapes but no values: torch's own
`FlopCounterMode` sees every convolution and matrix product that is really dispatched, of any module, without
rules per layer type and without tracing. It counts a multiply-add as two FLOPs and leaves out the rest
(normalisation, activation, pooling, additions), as published figures do.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tessera.errors import TesseraError, first_line

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """The size of a network and of one forward pass over a batch of `input_shape`.

    `weight_bytes` are all parameters and buffers. `activation_bytes` are all tensors an eager pass makes, one
    after the other: what is written to memory if nothing is fused, not how much is alive at once.
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
        """Multiply-adds, as papers give them."""
        return self.flops // 2

    @property
    def intensity(self) -> float:
        """FLOPs per byte of weights: what one load of the weights has to pay for."""
        return self.flops / self.weight_bytes


def model_info(
    name_or_spec: str, *, image_size: int | None = None, batch_size: int = 1, dtype: str = "float32", **options: Any
) -> ModelInfo:
    """Count a model by name for square images, by default of the size it was made for, without making its weights.

    >>> info = model_info("resnet50")
    >>> f"{info.params:,} parameters, {info.macs / 1e9:.2f} GMACs"
    '25,557,032 parameters, 4.09 GMACs'
    """
    from tessera.models.registry import image_size_of, lay_out

    if image_size is None:
        image_size = image_size_of(name_or_spec)
    if image_size < 1 or batch_size < 1:
        raise TesseraError("an image and a batch have a size", got=(image_size, batch_size), allowed="1 or more")
    module = lay_out(name_or_spec, **options).eval()
    channels = int(options.get("in_channels", 3))
    return count(module, (batch_size, channels, image_size, image_size), dtype=dtype)


def count(module: nn.Module, input_shape: tuple[int, ...], *, dtype: str = "float32") -> ModelInfo:
    """Count a module for an input of a shape. The module may live anywhere and is left as it is."""
    import torch
    from torch.func import functional_call
    from torch.utils.flop_counter import FlopCounterMode

    from tessera.models.activations import ActivationBytes

    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype) or not kind.is_floating_point:
        raise TesseraError("unknown dtype", got=dtype, allowed=["float32", "float64", "bfloat16", "float16"])
    state = {name: _on_meta(t, kind) for name, t in (*module.named_parameters(), *module.named_buffers())}
    flops, activations = FlopCounterMode(display=False), ActivationBytes()
    image = torch.empty(input_shape, dtype=kind, device="meta")
    try:
        with torch.no_grad(), flops, activations:
            output = functional_call(apart(module), state, (image,))
    except Exception as error:  # a module of one's own raises what it likes
        raise TesseraError(f"the model does not take this input: {first_line(error)}", got=tuple(input_shape)) from None
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


def apart(module: nn.Module) -> nn.Module:
    """A copy with the same weights: what a network keeps from a pass for the next one stays in the copy."""
    kept = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    try:
        return copy.deepcopy(module, kept)  # which takes what is in its memo for copied already
    except Exception:  # whatever a network holds that cannot be copied
        return module


def _on_meta(tensor: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    import torch

    return torch.empty_like(tensor, dtype=kind if tensor.is_floating_point() else None, device="meta")
