"""A network as an engine runs it: input format, normalisation, precision.

The deployed network is one torch module that engines run directly or as an exported file. It converts the pixels,
normalises them if the device is to do so, runs the network, and converts the outputs.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from tessera.inference.data.images import PixelFormat
from tessera.inference.networks import InferenceNetwork
from tessera.inference.networks.random_weights import fit_random_weights
from tessera.inference.precision import Precision


class DeployedModule(nn.Module):
    """A network together with the conversion of its inputs and outputs."""

    scale: Tensor
    shift: Tensor

    def __init__(self, network: nn.Module, pixels: PixelFormat, *, compute: torch.dtype, output: torch.dtype) -> None:
        super().__init__()
        self.network = network
        self._compute, self._output = compute, output
        self._widens, self._narrows = pixels.dtype != _get_dtype_name(compute), compute != output
        self._normalises = pixels.normalised_on == "device"
        for name, values in zip(("scale", "shift"), pixels.compute_scale_and_shift(), strict=True):
            self.register_buffer(name, torch.from_numpy(values).to(compute).reshape(1, -1, 1, 1))

    def forward(self, x: Tensor) -> Any:
        if self._widens:
            x = x.to(self._compute)
        if self._normalises:
            x = x * self.scale + self.shift
        y = self.network(x)
        return tree_map_only(Tensor, lambda part: part.to(self._output), y) if self._narrows else y


def _get_dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """A network with its input format and precision."""

    network: InferenceNetwork
    pixels: PixelFormat
    precision: Precision
    seed: int = 0

    @property
    def identity(self) -> str:
        """A string that identifies the exported files: deployments with equal strings share files."""
        return f"{self.network.identity}|{self.pixels}|{self.precision.weights}|{self.precision.io}"

    def compute_input_shape(self, batch_size: int) -> tuple[int, int, int, int]:
        return batch_size, *self.network.image_shape

    def make_zeros(self, batch_size: int) -> Tensor:
        """Return a batch of zeros in the input format."""
        return torch.zeros(self.compute_input_shape(batch_size), dtype=getattr(torch, self.pixels.dtype))

    @property
    def has_fitted_weights(self) -> bool:
        """Whether the weights are random and fitted to generated images, as int8 requires (see `random_weights`)."""
        return self.network.random_weights and self.precision.weights == "int8"

    @cached_property
    def module(self) -> nn.Module:
        """The module that torch engines run."""
        compute, module = getattr(torch, self.precision.compute), self._rounded
        if compute is not torch.float32:
            module = copy.deepcopy(module).to(compute)
        return self._wrap(module, compute)

    @cached_property
    def float32_module(self) -> nn.Module:
        """The module with float32 arithmetic and unquantised weights: exported for engines other than torch, which may
        reduce the arithmetic themselves, and the reference of the agreement check.
        """
        return self._wrap(self._rounded, torch.float32)

    def _wrap(self, module: nn.Module, compute: torch.dtype) -> nn.Module:
        output = getattr(torch, self.precision.io)
        return DeployedModule(module, self.pixels, compute=compute, output=output).eval()

    @cached_property
    def _loaded(self) -> nn.Module:
        module = self.network.module
        if self.has_fitted_weights:
            fit_random_weights(module, self.network.image_shape, seed=self.seed)
        return module

    @property
    def _rounded(self) -> nn.Module:
        """The network, with weights rounded to 16 bits if the precision has 16-bit weights."""
        if self.precision.weights not in ("float16", "bfloat16"):
            return self._loaded
        narrow, module = getattr(torch, self.precision.weights), copy.deepcopy(self._loaded)
        with torch.no_grad():
            for tensor in (*module.parameters(), *module.buffers()):
                if tensor.is_floating_point():
                    tensor.copy_(tensor.to(narrow))
        return module
