"""Weights of a network for the device: batch norms folded, flattened and folded images taken into account."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tessera.coregrid.device.tensors import Tensor, from_torch
from tessera.coregrid.networks.layers import GridLayer, GridNetwork
from tessera.coregrid.networks.recording import ValueRef, WeightRef

NORM_ARGUMENTS = ("weight", "bias", "running_mean", "running_var", "eps")  # of a recorded batch norm


class NetworkWeights:
    """The parameters and buffers of a module, and the constants that the network computes from them."""

    def __init__(self, module: nn.Module, network: GridNetwork) -> None:
        self.network = network
        self._tensors = {
            name: tensor.detach().float() if tensor.is_floating_point() else tensor
            for pairs in (module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False))
            for name, tensor in pairs
        }
        self._constants: dict[ValueRef, torch.Tensor] = {}

    def get_constant(self, reference: Any) -> Any:
        """Return a weight, or a value that the network computes without its input; other arguments are unchanged."""
        if isinstance(reference, WeightRef):
            return self._tensors[reference.name]
        if not isinstance(reference, ValueRef):
            return reference
        if reference not in self._constants:
            outputs = self.network.calls[reference.call].replay(self.get_constant)
            self._constants |= {ValueRef(reference.call, number): each for number, each in enumerate(outputs)}
        return self._constants[reference]

    def load(self, layer: GridLayer) -> tuple[Tensor, Tensor | None]:
        """Return weights `(Co, Ci / groups, Kh, Kw)` and bias; transposed: weights `(Ci, Co / groups, Kh, Kw)`."""
        weight, bias = self.get_constant(layer.weight), self.get_constant(layer.bias)
        if layer.kind == "linear":
            weight = weight.t()
            if layer.flattened is not None:  # torch flattens channel by channel, the device stores pixel by pixel
                weight = weight.reshape(-1, *layer.flattened).permute(0, 2, 3, 1).flatten(1)
            weight = weight[:, :, None, None]
        if layer.norm is not None:
            weight, bias = self._fold_norm(layer.norm, weight, bias)
        if layer.folding > 1:
            weight = fold_weights(weight, layer)
        return from_torch(weight.contiguous()), None if bias is None else from_torch(bias.reshape(1, 1, 1, -1))

    def _fold_norm(
        self, number: int, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        call = self.network.calls[number]
        scale, shift, mean, variance, eps = (self.get_constant(call.get_argument(name)) for name in NORM_ARGUMENTS)
        factor = (variance + eps).rsqrt()
        factor = factor if scale is None else factor * scale
        offset = (0.0 if bias is None else bias) - mean
        folded = offset * factor
        return weight * factor[:, None, None, None], folded if shift is None else folded + shift


def fold_weights(weight: torch.Tensor, layer: GridLayer) -> torch.Tensor:
    """Return the weights for folded images: taps within a block of pixels become channels."""
    step, conv = layer.folding, layer.window
    outputs, channels, height, width = weight.shape
    padded = torch.zeros(outputs, channels, conv.kernel[0] * step, conv.kernel[1] * step)
    padded[:, :, :height, :width] = weight
    blocks = padded.reshape(outputs, channels, conv.kernel[0], step, conv.kernel[1], step)
    return blocks.permute(0, 3, 5, 1, 2, 4).reshape(outputs, conv.in_channels, *conv.kernel)
