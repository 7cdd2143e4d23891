"""Convolution layers on tiles: a halo exchange, then torch's convolution of the frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from tessera.geometry import Box, HaloPlan, Window
from tessera.spatial.distribution import Distribution, SpatialSettings
from tessera.spatial.exchange import CountedExchange
from tessera.spatial.layers.frames import FrameExchange, get_tensor_shape, make_unreached_output
from tessera.spatial.layers.layer import LocalLayer, TileLayer, is_split
from tessera.spatial.layers.overlap import Addition, Order, OverlapStages, choose_fastest_order

CONVOLUTIONS: dict[int, Any] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
ConvNd = nn.Conv1d | nn.Conv2d | nn.Conv3d


def build_convolution(module: ConvNd, distribution: Distribution, settings: SpatialSettings) -> TileLayer:
    window = get_window(module)
    output = distribution.resize(window.compute_output_size(distribution.sizes[1:]))
    if not is_split(distribution):
        return LocalLayer(module, output)
    plan = HaloPlan(distribution.partition, window, output.partition, module.padding_mode)
    return TileConvolution(module, plan, output, settings)


def get_window(module: ConvNd) -> Window:
    """Return the window of a convolution. If `same` padding has an odd total, the extra pixel is after the image."""
    padding: list[tuple[int, int]] = []
    for axis, (kernel, dilation) in enumerate(zip(module.kernel_size, module.dilation, strict=True)):
        if module.padding == "same":
            total = dilation * (kernel - 1)
            padding.append((total // 2, total - total // 2))
        else:
            length = 0 if isinstance(module.padding, str) else module.padding[axis]
            padding.append((length, length))
    return Window.of(module.kernel_size, stride=module.stride, dilation=module.dilation, padding=padding)


class TileConvolution:
    """A convolution layer on a tile, overlapped with its halo exchange according to the settings."""

    def __init__(self, module: ConvNd, plan: HaloPlan, distribution: Distribution, settings: SpatialSettings) -> None:
        self._module, self.distribution, self._settings = module, distribution, settings
        self._frames = FrameExchange(plan, settings)
        self._stages = OverlapStages.of(plan, settings.transport.rank)
        self._chosen: dict[tuple[CountedExchange, bool], Order] = {}

    @property
    def overlaps(self) -> bool:
        """Whether computation overlaps with the transfer of borders (forward) and of their gradients (backward)."""
        return self._settings.overlap != "none"

    @property
    def chosen_orders(self) -> tuple[Order, ...]:
        """The overlap orders that `auto` has chosen, one for each dtype, with and without gradients."""
        return tuple(self._chosen.values())

    def __call__(self, tile: Tensor) -> Tensor:
        weight, bias = self._module.weight, self._module.bias
        if not self._frames.is_needed:
            return self._convolve_tile(tile, weight, bias)
        exchange = self._frames.exchange(tile)
        inputs = (tile, weight, bias)
        if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in inputs):
            output: Tensor = _TileConvolutionFunction.apply(*inputs, self, exchange)  # type: ignore[no-untyped-call]
            return output
        return self.run(*inputs, exchange, keep_frame=False)

    def run(
        self, tile: Tensor, weight: Tensor, bias: Tensor | None, exchange: CountedExchange, *, keep_frame: bool
    ) -> Tensor:
        """Exchange and convolve without autograd; with `keep_frame`, the frame is complete afterwards, for backward."""
        convolve = self._make_kernel(weight, bias)

        def run_in_order(order: Order) -> Tensor:
            return self._stages.run(order, exchange, tile, convolve, keep_frame=keep_frame)

        if self._settings.overlap != "auto":
            return run_in_order(self._settings.overlap)
        if self._frames.plan.is_local:
            return run_in_order("none")
        if (exchange, keep_frame) not in self._chosen:  # first call with this exchange
            self._chosen[exchange, keep_frame] = choose_fastest_order(run_in_order, self._settings.transport)
        return run_in_order(self._chosen[exchange, keep_frame])

    def _convolve_tile(self, tile: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Convolve a tile that requires neither halo nor padding (fast path)."""
        if not self._stages.output:
            return make_unreached_output(get_tensor_shape(self._stages.output, weight.shape[0]), tile, weight, bias)
        return self._make_kernel(weight, bias).compute(
            self._frames.view_input(tile), [0] * len(self._module.kernel_size)
        )

    def _make_kernel(self, weight: Tensor, bias: Tensor | None) -> ConvolutionKernel:
        return ConvolutionKernel(
            module=self._module,
            weight=weight,
            bias=bias,
            output=self._stages.output,
            layout=torch.channels_last if self._frames.channels_last else torch.contiguous_format,
        )

    def compute_gradients(
        self, grad: Tensor, frame: Tensor, weight: Tensor, bias: Tensor | None, wanted: list[bool]
    ) -> list[Tensor | None]:
        """Return the gradients of the frame, the weight and the bias; None where `wanted` is False."""
        if not self._stages.output:  # no output on this rank
            inputs = zip((frame, weight, bias), wanted, strict=True)
            return [torch.zeros_like(tensor) if want and tensor is not None else None for tensor, want in inputs]
        module, zeros = self._module, [0] * len(self._module.kernel_size)
        sizes = None if bias is None else bias.shape
        return list(
            torch.ops.aten.convolution_backward(
                grad, frame, weight, sizes, module.stride, zeros, module.dilation, False, zeros, module.groups, wanted
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionKernel:
    """The convolution of a module with these weights; `output` is this rank's part of the output."""

    module: ConvNd
    weight: Tensor
    bias: Tensor | None
    output: Box
    layout: torch.memory_format

    def compute(self, pixels: Tensor, padding: Sequence[int]) -> Tensor:
        if not self.output:
            return pixels.new_empty(get_tensor_shape(self.output, self.weight.shape[0]))
        module = self.module
        output: Tensor = CONVOLUTIONS[len(module.kernel_size)](
            pixels, self.weight, self.bias, module.stride, tuple(padding), module.dilation, module.groups
        )
        return output

    def compute_strip(self, pixels: Tensor) -> Tensor:
        return self._compute_thin(pixels, self.weight, self.bias)

    def compute_addition(self, pixels: Tensor, addition: Addition) -> Tensor:
        around = [side for pair in reversed(addition.padding) for side in pair]  # F.pad expects the last dim first
        taps = (slice(None), slice(None), *(part.slice for part in addition.taps))
        return self._compute_thin(F.pad(pixels, around), self.weight[taps], None)

    def _compute_thin(self, pixels: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Convolve a thin strip. Vertical strips are transposed, because torch is up to three times slower on them."""
        stride, dilation = self.module.stride, self.module.dilation
        if pixels.dim() != 4 or pixels.shape[2] <= pixels.shape[3]:
            convolve = CONVOLUTIONS[len(self.module.kernel_size)]
            output: Tensor = convolve(pixels, weight, bias, stride, 0, dilation, self.module.groups)
            return output
        rows, row_weight = (t.transpose(2, 3).contiguous(memory_format=self.layout) for t in (pixels, weight))
        return F.conv2d(rows, row_weight, bias, stride[::-1], 0, dilation[::-1], self.module.groups).transpose(2, 3)


class _TileConvolutionFunction(torch.autograd.Function):
    """Halo exchange and convolution as one autograd function, so that they can overlap."""

    @staticmethod
    def forward(
        ctx: Any, tile: Tensor, weight: Tensor, bias: Tensor | None, layer: TileConvolution, exchange: CountedExchange
    ) -> Tensor:
        output = layer.run(tile, weight, bias, exchange, keep_frame=True)
        ctx.save_for_backward(weight, bias)  # without the frame, which the next round overwrites
        ctx.layer, ctx.exchange, ctx.round = layer, exchange, exchange.rounds
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        layer, exchange, (weight, bias) = ctx.layer, ctx.exchange, ctx.saved_tensors
        exchange.check(ctx.round)
        of_tile, of_weight, of_bias = ctx.needs_input_grad[:3]
        frame = exchange.read(exchange.worker_plan.need)
        grad_tile = grad_weight = grad_bias = None
        if of_tile:  # computed first, so that it is sent while the other gradients are computed
            grad_frame, _, _ = layer.compute_gradients(grad, frame, weight, bias, [True, False, False])
            exchange.start_adjoint(grad_frame)
            if not layer.overlaps:
                grad_tile = exchange.finish_adjoint()
        if of_weight or of_bias:
            _, grad_weight, grad_bias = layer.compute_gradients(grad, frame, weight, bias, [False, of_weight, of_bias])
        if of_tile and layer.overlaps:
            grad_tile = exchange.finish_adjoint()
        return grad_tile, grad_weight, grad_bias, None, None
