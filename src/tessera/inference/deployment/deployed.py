"""A network as an engine gets it: what crosses to it, what is done to the pixels there, what it computes in.

All of it is one torch module, so that every engine runs, or is given as a file, the very same thing: pixels are widened
and normalised (where that is the device's business), the network runs, its outputs are narrowed again.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from tessera.inference.data.pixels import Pixels
from tessera.inference.networks import Network
from tessera.inference.networks.random_weights import fit_random_weights
from tessera.inference.precision import Precision


class Deployed(nn.Module):
    """The network between its input and its output as they cross to the engine."""

    scale: Tensor
    shift: Tensor

    def __init__(self, network: nn.Module, pixels: Pixels, *, compute: torch.dtype, output: torch.dtype) -> None:
        super().__init__()
        self.network = network
        self._compute, self._output = compute, output
        self._widens, self._narrows = pixels.element != _name(compute), compute != output
        self._normalises = pixels.normalised_on == "device"
        for name, values in zip(("scale", "shift"), pixels.scale_and_shift(), strict=True):
            self.register_buffer(name, torch.from_numpy(values).to(compute).reshape(1, -1, 1, 1))

    def forward(self, x: Tensor) -> Any:
        if self._widens:
            x = x.to(self._compute)
        if self._normalises:
            x = x * self.scale + self.shift
        y = self.network(x)
        return tree_map_only(Tensor, lambda part: part.to(self._output), y) if self._narrows else y


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """A network with the decision how it is deployed."""

    network: Network
    pixels: Pixels
    precision: Precision
    seed: int = 0

    @property
    def identity(self) -> str:
        """What tells the files of this deployment from those of another."""
        return f"{self.network.identity}|{self.pixels}|{self.precision.weights}|{self.precision.io}"

    def input_shape(self, batch_size: int) -> tuple[int, int, int, int]:
        return batch_size, *self.network.image_shape

    @property
    def fitted(self) -> bool:
        """Whether random weights are fitted: they are where a network is rounded to few bits."""
        return self.network.random_weights and self.precision.weights == "int8"

    @cached_property
    def module(self) -> nn.Module:
        """What a torch engine runs."""
        compute, module = getattr(torch, self.precision.compute), self._rounded
        if compute is not torch.float32:
            module = copy.deepcopy(module).to(compute)
        return self._deployed(module, compute)

    @cached_property
    def wide(self) -> nn.Module:
        """What the other engines are given as a file: arithmetic in float32, which they may narrow themselves."""
        return self._deployed(self._rounded, torch.float32)

    @property
    def reference(self) -> nn.Module:
        """What every engine is held against: the same weights (those of int8 before they are quantised) in float32."""
        return self.wide

    def _deployed(self, module: nn.Module, compute: torch.dtype) -> nn.Module:
        output = getattr(torch, self.precision.io)
        return Deployed(module, self.pixels, compute=compute, output=output).eval()

    @cached_property
    def _loaded(self) -> nn.Module:
        module = self.network.module
        if self.fitted:
            fit_random_weights(module, self.network.image_shape, seed=self.seed)
        return module

    @property
    def _rounded(self) -> nn.Module:
        """The network with the weights that fit into 16 bits, where that is asked for; else itself."""
        if self.precision.weights not in ("float16", "bfloat16"):
            return self._loaded
        narrow, module = getattr(torch, self.precision.weights), copy.deepcopy(self._loaded)
        with torch.no_grad():
            for tensor in (*module.parameters(), *module.buffers()):
                if tensor.is_floating_point():
                    tensor.copy_(tensor.to(narrow))
        return module
