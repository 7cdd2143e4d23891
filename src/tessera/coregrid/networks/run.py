"""Execute a planned network on a device, layer by layer. Activations stay on the cores between layers."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from tessera.coregrid.config import SliceConfig
from tessera.coregrid.device.device import Device
from tessera.coregrid.device.tensors import Tensor, deallocate, from_torch, reshape, to_torch
from tessera.coregrid.formats import DataType, bfloat16
from tessera.coregrid.networks.layers import GridLayer, NetworkPart, fold_batch_norms
from tessera.coregrid.networks.plan import NetworkPlan
from tessera.coregrid.operations.add import add_
from tessera.coregrid.operations.conv2d import conv2d
from tessera.coregrid.operations.pools import global_avg_pool2d, max_pool2d
from tessera.coregrid.planning.plan import ConvPlan
from tessera.errors import TesseraError


class NetworkOnDevice:
    """A planned network with its weights on a device. Call it with images `(N, C, H, W)`.

    Batch norms are folded into the preceding convolutions, activations are fused.
    """

    def __init__(self, module: nn.Module, plan: NetworkPlan, device: Device) -> None:
        if device.grid != plan.machine.workers:
            raise TesseraError(
                "the device does not match the plan of the network", got=device, allowed=plan.machine.name
            )
        self.plan, self.device = plan, device
        self._folded = fold_batch_norms(module)
        self._plans: dict[str, ConvPlan] = {
            step.name: step.option.plan
            for step in plan.steps
            if step.option is not None and step.option.plan is not None
        }
        self._prepared: dict[str, tuple[Tensor, Tensor | None]] = {}

    @property
    def dtype(self) -> DataType:
        """Number format of the activations."""
        return next(iter(self._plans.values())).config.dtype

    @torch.no_grad()
    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """Run the network and return its output as a float32 host tensor."""
        # images are row-major, so they cannot have a block format
        dtype = bfloat16 if self.dtype.is_block else self.dtype
        value = from_torch(images.permute(0, 2, 3, 1), dtype)
        for part in self.plan.network.parts:
            value = self._run_part(part, value)
        output = to_torch(value).float()
        deallocate(value)
        return output.reshape(len(images), -1)

    def _run_part(self, part: NetworkPart, value: Tensor) -> Tensor:
        if isinstance(part, GridLayer):
            return self._run_layer(part, value, free_input=True)
        # The body runs first and does not free its input. The shortcut reads the same input and frees it.
        body = value
        for number, layer in enumerate(part.body):
            body = self._run_layer(layer, body, free_input=number > 0)
        shortcut = value
        for layer in part.shortcut:
            shortcut = self._run_layer(layer, shortcut, free_input=True)
        summed = add_(body, shortcut, activations=[part.activation])
        deallocate(shortcut)
        return summed

    def _run_layer(self, layer: GridLayer, value: Tensor, *, free_input: bool) -> Tensor:
        """Run one layer and return its output. `free_input` deallocates the input as soon as possible."""
        conv = layer.conv
        sizes = conv.batch, conv.height, conv.width, conv.in_channels
        if layer.kind == "max_pool":
            (down, _), (right, _) = conv.padding
            return max_pool2d(
                value, *sizes, conv.kernel, conv.stride, (down, right), conv.dilation, deallocate_input=free_input
            )
        if layer.kind == "global_pool":
            means = global_avg_pool2d(reshape(value, sizes))
            if free_input:
                deallocate(value)
            return means
        return self._run_convolution(layer, value, free_input=free_input)

    def _run_convolution(self, layer: GridLayer, value: Tensor, *, free_input: bool) -> Tensor:
        conv, plan = layer.conv, self._plans[layer.name]
        config = replace(plan.config, activation=layer.activation, deallocate_activation=free_input)
        flat = reshape(value, (1, 1, conv.input_sticks, conv.in_channels))
        if free_input and layer.flattened is not None:  # `reshape` has copied `value`
            deallocate(value)
        slices = SliceConfig(axis=plan.slices[0].axis, num_slices=len(plan.slices)) if plan.slices else None
        weights, bias = self._prepared.get(layer.name) or self._load_weights(layer)
        result, [weights, bias] = conv2d(
            input_tensor=flat,
            weight_tensor=weights,
            bias_tensor=bias,
            device=self.device,
            conv_config=config,
            compute_config=plan.compute,
            slice_config=slices,
            **conv.call_arguments,
            return_weights_and_bias=True,
        )
        self._prepared[layer.name] = weights, bias
        output: Tensor = result
        return output

    def _load_weights(self, layer: GridLayer) -> tuple[Tensor, Tensor | None]:
        """Return the weights of a layer as host tensor `(Co, Ci / groups, Kh, Kw)`, and the bias."""
        module = self._folded.get_submodule(layer.name)
        assert isinstance(module, nn.Conv2d | nn.Linear)
        weight = module.weight
        if layer.flattened is not None:  # torch flattens channel by channel, the device stores pixel by pixel
            weight = weight.reshape(-1, *layer.flattened).permute(0, 2, 3, 1).flatten(1)
        if isinstance(module, nn.Linear):
            weight = weight[:, :, None, None]
        bias = None if module.bias is None else from_torch(module.bias.reshape(1, 1, 1, -1))
        return from_torch(weight), bias
