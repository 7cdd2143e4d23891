"""Execute a planned network on a device, layer by layer. Activations stay on the cores unless the plan spills them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tessera.coregrid.config import SliceConfig
from tessera.coregrid.device.device import Device
from tessera.coregrid.device.storage import MatrixSpec, complete_config, write_values
from tessera.coregrid.device.tensors import (
    Tensor,
    allocate_tensor,
    deallocate,
    from_torch,
    reshape,
    to_device,
    to_memory_config,
    to_torch,
)
from tessera.coregrid.execution.program import ConvProgram
from tessera.coregrid.formats import DataType, Layout, bfloat16
from tessera.coregrid.memory_config import (
    DRAM_MEMORY_CONFIG,
    L1_HEIGHT_SHARDED_MEMORY_CONFIG,
    MemoryConfig,
)
from tessera.coregrid.networks.layer_options import GLOBAL, Placement
from tessera.coregrid.networks.layers import CONVOLUTION_KINDS, NETWORK_INPUT, GridLayer
from tessera.coregrid.networks.network_weights import NetworkWeights
from tessera.coregrid.networks.plan import NetworkPlan, NetworkPlanStep
from tessera.coregrid.networks.recording import ValueRef
from tessera.coregrid.operations.add import add, add_
from tessera.coregrid.operations.conv2d import conv2d, conv_transpose2d
from tessera.coregrid.operations.pools import avg_pool2d, global_avg_pool2d, max_pool2d
from tessera.coregrid.operations.resample import upsample
from tessera.coregrid.planning.ledger import Ledger
from tessera.errors import TesseraError


class NetworkOnDevice:
    """A planned network with its weights on a device. Call it with images `(N, C, H, W)`.

    Batch norms are folded into the preceding convolutions, activations are fused. Operations without an equivalent on
    the device (plan steps of kind `elementwise`, `norm`, `mul` and `other`) are computed by torch on the values of the
    device's tensors, and rounded to the format of the network.
    """

    def __init__(self, module: nn.Module, plan: NetworkPlan, device: Device) -> None:
        if device.grid != plan.machine.workers:
            raise TesseraError(
                "the device does not match the plan of the network", got=device, allowed=plan.machine.name
            )
        self.plan, self.device = plan, device
        self._weights = NetworkWeights(module, plan.network)
        self._prepared: dict[int, tuple[Tensor, Tensor | None]] = {}
        self._last_uses = plan.network.find_last_uses()
        self._values: dict[int, Tensor] = {}
        self._places: dict[int, Placement] = {}

    @property
    def dtype(self) -> DataType:
        """Number format of the activations."""
        return self.plan.config.dtype

    @torch.no_grad()
    def __call__(self, images: torch.Tensor) -> Any:
        """Run the network and return its output, or a tuple of its outputs, as float32 host tensors."""
        network = self.plan.network
        if tuple(images.shape) != network.input_shape:
            raise TesseraError("the images do not match the plan", got=images.shape, allowed=f"{network.input_shape}")
        # images are row-major, so they cannot have a block format
        dtype = bfloat16 if self.dtype.is_block else self.dtype
        pixels = from_torch(_flatten_images(images), dtype)
        self._values = {NETWORK_INPUT: to_device(pixels, self.device, DRAM_MEMORY_CONFIG)}
        self._places = {NETWORK_INPUT: GLOBAL}
        try:
            for step in self.plan.steps:
                self._run_step(step)
            outputs = tuple(
                self._read(output, shape) for output, shape in zip(network.outputs, network.output_shapes, strict=True)
            )
        finally:
            for value in self._values.values():
                deallocate(value)
            self._values = {}
        return outputs[0] if len(outputs) == 1 else outputs

    def _run_step(self, step: NetworkPlanStep) -> None:
        layer = self.plan.network.layers[step.number]
        for spilled in step.spilled:
            self._move(spilled, DRAM_MEMORY_CONFIG)
            self._places[spilled] = GLOBAL
        dying = [source for source in dict.fromkeys(layer.inputs) if self._is_last_use(source, step.number)]
        value = self._run_layer(step, layer, dying)
        for source in dying:
            deallocate(self._values.pop(source))
        if self._last_uses[step.number] > step.number:
            self._values[step.number], self._places[step.number] = value, step.option.target
        else:
            deallocate(value)

    def _is_last_use(self, source: int, number: int) -> bool:
        if source == NETWORK_INPUT:
            return not any(NETWORK_INPUT in layer.inputs for layer in self.plan.network.layers[number + 1 :])
        return self._last_uses[source] == number

    def _run_layer(self, step: NetworkPlanStep, layer: GridLayer, dying: list[int]) -> Tensor:
        if layer.kind in CONVOLUTION_KINDS and step.option.plan is not None:
            return self._run_convolution(step, layer, dying)
        if not step.option.through_global:
            operation = _OPERATIONS.get(layer.kind)
            if operation is not None:
                return operation(self, step, layer, dying)
        return self._run_general(step, layer, dying)

    def _run_convolution(self, step: NetworkPlanStep, layer: GridLayer, dying: list[int]) -> Tensor:
        conv, plan = layer.window, step.option.plan
        assert plan is not None
        source = layer.inputs[0]
        transposed = layer.kind == "conv_transpose"
        if plan.slices:
            value = self._use(source, DRAM_MEMORY_CONFIG, dying)
        elif transposed:
            value = self._use(source, L1_HEIGHT_SHARDED_MEMORY_CONFIG, dying)
        elif layer.flattened is not None:
            value = self._use(source, DRAM_MEMORY_CONFIG, dying)
        else:
            value = self._use(source, ConvProgram.of(plan).input, dying)
        flat = reshape(value, (1, 1, -1, conv.in_channels))
        frees = source in dying or value is not self._values[source]
        config = replace(
            plan.config,
            activation=layer.activation,
            deallocate_activation=frees,
            reshard_if_not_optimal=not plan.config.override_sharding_config,
        )
        slices = SliceConfig(axis=plan.slices[0].axis, num_slices=len(plan.slices)) if plan.slices else None
        weights, bias = self._prepared.get(step.number) or self._weights.load(layer)
        arguments = conv.call_arguments
        if transposed:
            arguments = self._list_transposed_arguments(layer)
        result, [weights, bias] = (conv_transpose2d if transposed else conv2d)(
            input_tensor=flat,
            weight_tensor=weights,
            bias_tensor=bias,
            device=self.device,
            conv_config=config,
            compute_config=plan.compute,
            slice_config=slices,
            **arguments,
            return_weights_and_bias=True,
        )
        self._prepared[step.number] = weights, bias
        for used in (flat, value):
            if frees:
                deallocate(used)
        output: Tensor = result
        return output

    def _list_transposed_arguments(self, layer: GridLayer) -> dict[str, Any]:
        call = self.plan.network.calls[layer.calls[0]]
        source = layer.inputs[0]
        shape = self.plan.network.input_shape if source < 0 else self.plan.network.layers[source].shape
        conv = layer.window
        return {
            "batch_size": conv.batch,
            "input_height": shape[2],
            "input_width": shape[3],
            "in_channels": conv.in_channels,
            "out_channels": conv.out_channels,
            "kernel_size": conv.kernel,
            "stride": tuple(call.args[3]),
            "padding": tuple(call.args[4]),
            "dilation": tuple(call.args[5]),
            "output_padding": tuple(call.args[7]),
            "groups": conv.groups,
        }

    def _run_pool(self, step: NetworkPlanStep, layer: GridLayer, dying: list[int]) -> Tensor:
        conv, source = layer.window, layer.inputs[0]
        value = self._use(source, L1_HEIGHT_SHARDED_MEMORY_CONFIG, dying)
        frees = source in dying or value is not self._values[source]
        sizes = conv.batch, conv.height, conv.width, conv.in_channels
        (down, _), (right, _) = conv.padding
        if layer.kind == "max_pool":
            return max_pool2d(
                value, *sizes, conv.kernel, conv.stride, (down, right), conv.dilation, deallocate_input=frees
            )
        return avg_pool2d(value, *sizes, conv.kernel, conv.stride, (down, right), deallocate_input=frees)

    def _run_global_pool(self, step: NetworkPlanStep, layer: GridLayer, dying: list[int]) -> Tensor:
        conv, source = layer.window, layer.inputs[0]
        value = self._values[source]
        if not value.is_sharded():
            value = self._use(source, L1_HEIGHT_SHARDED_MEMORY_CONFIG, dying)
        means = global_avg_pool2d(reshape(value, (conv.batch, conv.height, conv.width, conv.in_channels)))
        if value is not self._values[source]:
            deallocate(value)
        return reshape(means, (1, 1, conv.batch, conv.in_channels))

    def _run_upsample(self, step: NetworkPlanStep, layer: GridLayer, dying: list[int]) -> Tensor:
        source = layer.inputs[0]
        batch, channels, height, width = self._get_shape(source)
        value = self._use(source, L1_HEIGHT_SHARDED_MEMORY_CONFIG, dying)
        factors = layer.shape[2] // height, layer.shape[3] // width
        mode = "nearest" if "nearest" in self.plan.network.calls[layer.calls[0]].name else "bilinear"
        images = reshape(value, (batch, height, width, channels))
        result = upsample(images, factors, mode=mode)
        if value is not self._values[source]:
            deallocate(value)
        return reshape(result, (1, 1, *layer.matrix_size))

    def _run_addition(self, step: NetworkPlanStep, layer: GridLayer, dying: list[int]) -> Tensor:
        target, (left, right) = step.option.target, layer.inputs
        owner = left if self._places[left] == target else right
        if self._places[owner] != target:
            return self._run_general(step, layer, dying)
        other = right if owner == left else left
        kept, moved = self._values[owner], self._use(other, self._values[owner].memory_config(), dying)
        if owner in dying and owner != other:
            summed = add_(kept, moved, activations=[layer.activation])
            dying.remove(owner)
            del self._values[owner]
        else:
            summed = add(kept, moved, activations=[layer.activation])
        if other in self._values and moved is not self._values[other]:
            deallocate(moved)
        return summed

    def _run_concat(self, step: NetworkPlanStep, layer: GridLayer, dying: list[int]) -> Tensor:
        parts = []
        for source in layer.inputs:
            parts.append(self._use(source, L1_HEIGHT_SHARDED_MEMORY_CONFIG, dying))
        joined = torch.cat([to_torch(part).float().reshape(-1, part.shape[-1]) for part in parts], dim=1)
        for source, part in zip(layer.inputs, parts, strict=True):
            if part is not self._values[source]:
                deallocate(part)
        value = self._allocate(layer, L1_HEIGHT_SHARDED_MEMORY_CONFIG)
        write_values(value.storage, joined)
        self.device.add_moved_bytes(Ledger(local=joined.shape[0] * value.matrix.row_bytes))
        return value

    def _run_general(self, step: NetworkPlanStep, layer: GridLayer, dying: list[int]) -> Tensor:
        """Compute a layer with torch, from the values of its inputs; the result is placed as planned."""
        network, target = self.plan.network, step.option.target
        first = layer.inputs[0]
        config = DRAM_MEMORY_CONFIG
        if target is not GLOBAL:
            owner = next((source for source in layer.inputs if self._places[source] == target), None)
            config = L1_HEIGHT_SHARDED_MEMORY_CONFIG if owner is None else self._values[owner].memory_config()
        read = written = 0
        for source in dict.fromkeys(layer.inputs):
            if target is GLOBAL or self._places[source] is GLOBAL:
                self._move(source, DRAM_MEMORY_CONFIG)
                self._places[source] = GLOBAL
                matrix = self._values[source].matrix
                read += matrix.rows * matrix.row_bytes
        if layer.kind == "fold":
            result = fold_images(self._read(first, network.input_shape), layer)
        else:
            result = self._replay(layer)
        in_place = target is not GLOBAL and first in dying and self._places[first] == target
        if in_place and self._values[first].matrix == self._build_matrix(layer):
            value = self._values.pop(first)
            dying.remove(first)
        else:
            value = self._allocate(layer, config)
        write_values(value.storage, _flatten_images(result).reshape(layer.matrix_size))
        if target is GLOBAL:
            written = value.matrix.rows * value.matrix.row_bytes
        self.device.add_moved_bytes(Ledger(global_read=read, global_written=written))
        return value

    def _replay(self, layer: GridLayer) -> torch.Tensor:
        """Execute the recorded calls of a layer on the values of its inputs, in float32."""
        network = self.plan.network
        results: dict[ValueRef, torch.Tensor] = {}

        def get_tensor(reference: Any) -> torch.Tensor:
            if reference in results:
                return results[reference]
            if isinstance(reference, ValueRef) and reference in network.aliases:
                number, shape = network.aliases[reference]
                return self._read(number, shape)
            constant: torch.Tensor = self._weights.get_constant(reference)
            return constant

        outputs: tuple[torch.Tensor, ...] = ()
        for number in layer.calls:
            outputs = network.calls[number].replay(get_tensor)
            results |= {ValueRef(number, output): tensor for output, tensor in enumerate(outputs)}
        layers = [network.aliases.get(ValueRef(layer.calls[-1], each), (None,))[0] for each in range(len(outputs))]
        number = network.layers.index(layer)
        return outputs[layers.index(number) if number in layers else 0].float()

    def _build_matrix(self, layer: GridLayer) -> MatrixSpec:
        rows = layer.kind == "fold"
        dtype = bfloat16 if rows and self.dtype.is_block else self.dtype
        return MatrixSpec.of((1, 1, *layer.matrix_size), dtype, Layout.ROW_MAJOR if rows else Layout.TILE)

    def _allocate(self, layer: GridLayer, config: MemoryConfig) -> Tensor:
        return allocate_tensor(self.device, self._build_matrix(layer), (1, 1, *layer.matrix_size), config, layer.name)

    def _get_shape(self, number: int) -> tuple[int, ...]:
        return self.plan.network.input_shape if number < 0 else self.plan.network.layers[number].shape

    def _read(self, number: int, shape: tuple[int, ...]) -> torch.Tensor:
        """Return the values of a tensor as float32, in torch's shape."""
        values = to_torch(self._values[number]).float()
        if len(shape) == 4:
            batch, channels, height, width = shape
            return values.reshape(batch, height, width, channels).permute(0, 3, 1, 2).contiguous()
        return values.reshape(shape)

    def _move(self, number: int, config: MemoryConfig) -> None:
        """Move a tensor to another memory config, and free it where it was."""
        before = self._values[number]
        if before.is_sharded() or config is not DRAM_MEMORY_CONFIG:
            self._values[number] = to_memory_config(before, config)
            deallocate(before)

    def _use(self, number: int, config: MemoryConfig, dying: list[int]) -> Tensor:
        """Return a tensor in a memory config. A tensor that no later layer reads is moved, else it is copied."""
        value = self._values[number]
        if _lies_like(value, config):
            return value
        if config is DRAM_MEMORY_CONFIG:  # a tensor that later layers read stays in global memory
            self._move(number, config)
            self._places[number] = GLOBAL
            return self._values[number]
        copied = to_memory_config(value, config)
        if number in dying:
            deallocate(value)
            self._values[number] = copied
        return copied


def _lies_like(value: Tensor, config: MemoryConfig) -> bool:
    """Return whether a tensor has a memory config, or the sharding of a config without shard sizes."""
    return value.memory_config() == complete_config(config, value.matrix, value.allocation.device.grid)


def _flatten_images(images: torch.Tensor) -> torch.Tensor:
    """Return images `(N, C, H, W)` as `(1, 1, N*H*W, C)`; other tensors unchanged."""
    return images.permute(0, 2, 3, 1).reshape(1, 1, -1, images.shape[1]) if images.dim() == 4 else images


def fold_images(images: torch.Tensor, layer: GridLayer) -> torch.Tensor:
    """Pad images and make one pixel of every block of `layer.folding` x `layer.folding` pixels."""
    step, (batch, channels, height, width) = layer.folding, layer.shape
    (top, _), (left, _) = layer.window.padding
    below, beside = height * step - images.shape[2] - top, width * step - images.shape[3] - left
    padded = functional.pad(images, (left, beside, top, below))
    blocks = padded.reshape(batch, channels // step**2, height, step, width, step)
    return blocks.permute(0, 3, 5, 1, 2, 4).reshape(layer.shape)


_OPERATIONS: dict[str, Callable[[NetworkOnDevice, NetworkPlanStep, GridLayer, list[int]], Tensor]] = {
    "max_pool": NetworkOnDevice._run_pool,
    "avg_pool": NetworkOnDevice._run_pool,
    "global_pool": NetworkOnDevice._run_global_pool,
    "upsample": NetworkOnDevice._run_upsample,
    "add": NetworkOnDevice._run_addition,
    "concat": NetworkOnDevice._run_concat,
}
