"""Runs a whole network on a device, layer after layer as planned; what lies on the cores stays there in between."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from tessera.coregrid.config import SliceConfig
from tessera.coregrid.device.device import Device
from tessera.coregrid.device.tensors import Tensor, deallocate, from_torch, reshape, to_torch
from tessera.coregrid.formats import DataType, bfloat16
from tessera.coregrid.networks.folding import folded
from tessera.coregrid.networks.layers import Layer, Part
from tessera.coregrid.networks.plan import NetworkPlan
from tessera.coregrid.operations.add import add_
from tessera.coregrid.operations.conv2d import conv2d
from tessera.coregrid.operations.global_pool import global_avg_pool2d
from tessera.coregrid.operations.pools import max_pool2d
from tessera.coregrid.planning.plan import ConvPlan
from tessera.errors import TesseraError


class NetworkOnDevice:
    """A planned network with its weights on a device; call it with images `(N, C, H, W)` for what it makes of them.

    Batch norms are folded into the convolutions before them, activations are applied where the sums are made.
    """

    def __init__(self, module: nn.Module, plan: NetworkPlan, device: Device) -> None:
        if device.grid != plan.machine.workers:
            raise TesseraError("the network is planned for another device", got=device, allowed=plan.machine.name)
        self.plan, self.device = plan, device
        self._folded = folded(module)
        self._plans: dict[str, ConvPlan] = {
            step.name: step.option.plan
            for step in plan.steps
            if step.option is not None and step.option.plan is not None
        }
        self._prepared: dict[str, tuple[Tensor, Tensor | None]] = {}

    @property
    def dtype(self) -> DataType:
        """The format of its activations."""
        return next(iter(self._plans.values())).config.dtype

    @torch.no_grad()
    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """The network's output, as float32 on the host."""
        given = bfloat16 if self.dtype.is_block else self.dtype  # images come row by row, which no block format does
        value = from_torch(images.permute(0, 2, 3, 1), given)
        for part in self.plan.network.parts:
            value = self._part(part, value)
        found = to_torch(value).float()
        deallocate(value)
        return found.reshape(len(images), -1)

    def _part(self, part: Part, value: Tensor) -> Tensor:
        if isinstance(part, Layer):
            return self._layer(part, value, frees=True)
        # The body goes first and leaves the input for the shortcut, which frees it.
        body = value
        for number, layer in enumerate(part.body):
            body = self._layer(layer, body, frees=number > 0)
        shortcut = value
        for layer in part.shortcut:
            shortcut = self._layer(layer, shortcut, frees=True)
        summed = add_(body, shortcut, activations=[part.activation])
        deallocate(shortcut)
        return summed

    def _layer(self, layer: Layer, value: Tensor, *, frees: bool) -> Tensor:
        """One layer; `frees` gives its input back as soon as it is not needed."""
        conv = layer.conv
        sizes = conv.batch, conv.height, conv.width, conv.in_channels
        if layer.kind == "max_pool":
            (down, _), (right, _) = conv.padding
            return max_pool2d(
                value, *sizes, conv.kernel, conv.stride, (down, right), conv.dilation, deallocate_input=frees
            )
        if layer.kind == "global_pool":
            found = global_avg_pool2d(reshape(value, sizes))
            if frees:
                deallocate(value)
            return found
        return self._convolution(layer, value, frees=frees)

    def _convolution(self, layer: Layer, value: Tensor, *, frees: bool) -> Tensor:
        conv, plan = layer.conv, self._plans[layer.name]
        config = replace(plan.config, activation=layer.activation, deallocate_activation=frees)
        given = reshape(value, (1, 1, conv.inputs, conv.in_channels))
        if frees and layer.flattened is not None:  # a copy was made of it
            deallocate(value)
        slices = SliceConfig(axis=plan.slices[0].axis, num_slices=len(plan.slices)) if plan.slices else None
        weights, bias = self._prepared.get(layer.name) or self._from_module(layer)
        (top, bottom), (left, right) = conv.padding
        found, [weights, bias] = conv2d(
            input_tensor=given,
            weight_tensor=weights,
            in_channels=conv.in_channels,
            out_channels=conv.out_channels,
            device=self.device,
            bias_tensor=bias,
            kernel_size=conv.kernel,
            stride=conv.stride,
            padding=(top, bottom, left, right),
            dilation=conv.dilation,
            batch_size=conv.batch,
            input_height=conv.height,
            input_width=conv.width,
            conv_config=config,
            compute_config=plan.compute,
            groups=conv.groups,
            slice_config=slices,
            return_weights_and_bias=True,
        )
        self._prepared[layer.name] = weights, bias
        made: Tensor = found
        return made

    def _from_module(self, layer: Layer) -> tuple[Tensor, Tensor | None]:
        """The weights of a layer, those of a linear one as a convolution of 1x1, and its bias, on the host."""
        module = self._folded.get_submodule(layer.name)
        assert isinstance(module, nn.Conv2d | nn.Linear)
        weight = module.weight
        if layer.flattened is not None:  # torch flattens images channel by channel, here they lie pixel by pixel
            weight = weight.reshape(-1, *layer.flattened).permute(0, 2, 3, 1).flatten(1)
        if isinstance(module, nn.Linear):
            weight = weight[:, :, None, None]
        bias = None if module.bias is None else from_torch(module.bias.reshape(1, 1, 1, -1))
        return from_torch(weight), bias
