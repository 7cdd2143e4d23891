"""Convolutions on tiles: the borders come from the neighbours, the computation is torch's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from tessera.geometry import Box, HaloPlan, Window
from tessera.spatial.exchange import CountedExchange
from tessera.spatial.layers.framed import Frames, shape_of, unreached
from tessera.spatial.layers.layer import AsItIs, Layer, is_cut, makes
from tessera.spatial.layers.overlap import Addition, Order, Stages, fastest
from tessera.spatial.placed import Placed, Settings

CONVOLUTIONS: dict[int, Any] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
ConvNd = nn.Conv1d | nn.Conv2d | nn.Conv3d


@makes(nn.Conv1d, nn.Conv2d, nn.Conv3d)
def convolution(module: ConvNd, placed: Placed, settings: Settings) -> Layer:
    window = window_of(module)
    output = placed.resized(window.output_size(placed.sizes[1:]))
    if not is_cut(placed):
        return AsItIs(module, placed, output)
    plan = HaloPlan(placed.partition, window, output.partition, module.padding_mode)
    return Convolution(module, plan, output, settings)


def window_of(module: ConvNd) -> Window:
    """The window of a convolution; `same` padding of an odd length has its longer half after the image."""
    padding: list[tuple[int, int]] = []
    for axis, (kernel, dilation) in enumerate(zip(module.kernel_size, module.dilation, strict=True)):
        if module.padding == "same":
            total = dilation * (kernel - 1)
            padding.append((total // 2, total - total // 2))
        else:
            each = 0 if isinstance(module.padding, str) else module.padding[axis]
            padding.append((each, each))
    return Window.of(module.kernel_size, stride=module.stride, dilation=module.dilation, padding=padding)


class Convolution:
    """A convolution of a tile, overlapped with the exchange as the settings say."""

    def __init__(self, module: ConvNd, plan: HaloPlan, placed: Placed, settings: Settings) -> None:
        self._module, self.placed, self._settings = module, placed, settings
        self._frames = Frames(plan, settings)
        self._stages = Stages.of(plan, settings.transport.rank)
        self._chosen: dict[tuple[CountedExchange, bool], Order] = {}

    @property
    def overlaps(self) -> bool:
        """Whether anything is computed while borders or their gradients travel."""
        return self._settings.overlap != "none"

    @property
    def chosen(self) -> tuple[Order, ...]:
        """What `auto` has settled on, for each kind of tile that has been here."""
        return tuple(self._chosen.values())

    def __call__(self, tile: Tensor) -> Tensor:
        weight, bias = self._module.weight, self._module.bias
        if not self._frames.is_needed:
            return self._of_tile(tile, weight, bias)
        exchange = self._frames.exchange(tile)
        given = (tile, weight, bias)
        if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in given):
            found: Tensor = _OnTile.apply(*given, self, exchange)  # type: ignore[no-untyped-call]
            return found
        return self.run(*given, exchange, keep_frame=False)

    def run(
        self, tile: Tensor, weight: Tensor, bias: Tensor | None, exchange: CountedExchange, *, keep_frame: bool
    ) -> Tensor:
        """Exchange and convolution, without gradients; the frame stays for backward if that is asked for."""
        convolve = self._convolve(weight, bias)

        def in_order(order: Order) -> Tensor:
            return self._stages.run(order, exchange, tile, convolve, keep_frame=keep_frame)

        if self._settings.overlap != "auto":
            return in_order(self._settings.overlap)
        if self._frames.plan.is_local:
            return in_order("none")
        if (exchange, keep_frame) not in self._chosen:  # the first tile of its kind
            self._chosen[exchange, keep_frame] = fastest(in_order, self._settings.transport)
        return in_order(self._chosen[exchange, keep_frame])

    def _of_tile(self, tile: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Where nobody needs anything of anybody, not even padding."""
        if not self._stages.output:
            return unreached(shape_of(self._stages.output, weight.shape[0]), tile, weight, bias)
        return self._convolve(weight, bias).whole(self._frames.within_tile(tile), [0] * len(self._module.kernel_size))

    def _convolve(self, weight: Tensor, bias: Tensor | None) -> _Convolve:
        return _Convolve(
            module=self._module,
            weight=weight,
            bias=bias,
            output=self._stages.output,
            layout=torch.channels_last if self._frames.channels_last else torch.contiguous_format,
        )

    def gradients(
        self, grad: Tensor, frame: Tensor, weight: Tensor, bias: Tensor | None, wanted: list[bool]
    ) -> list[Tensor | None]:
        """Those of the frame, the weight and the bias that are wanted."""
        if not self._stages.output:  # this rank has no part in them
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
class _Convolve:
    """The convolution of a module with given weights; `output` is what this rank has of it."""

    module: ConvNd
    weight: Tensor
    bias: Tensor | None
    output: Box
    layout: torch.memory_format

    def whole(self, pixels: Tensor, padding: Sequence[int]) -> Tensor:
        if not self.output:
            return pixels.new_empty(shape_of(self.output, self.weight.shape[0]))
        module = self.module
        found: Tensor = CONVOLUTIONS[len(module.kernel_size)](
            pixels, self.weight, self.bias, module.stride, tuple(padding), module.dilation, module.groups
        )
        return found

    def strip(self, pixels: Tensor) -> Tensor:
        return self._thin(pixels, self.weight, self.bias)

    def addition(self, pixels: Tensor, addition: Addition) -> Tensor:
        around = [side for pair in reversed(addition.padding) for side in pair]  # torch names the last dim first
        taps = (slice(None), slice(None), *(part.slice for part in addition.taps))
        return self._thin(F.pad(pixels, around), self.weight[taps], None)

    def _thin(self, pixels: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """A column is computed on its side: torch's kernels go along rows, and are up to three times slower on one."""
        stride, dilation = self.module.stride, self.module.dilation
        if pixels.dim() != 4 or pixels.shape[2] <= pixels.shape[3]:
            convolve = CONVOLUTIONS[len(self.module.kernel_size)]
            found: Tensor = convolve(pixels, weight, bias, stride, 0, dilation, self.module.groups)
            return found
        lying, turned = (t.transpose(2, 3).contiguous(memory_format=self.layout) for t in (pixels, weight))
        return F.conv2d(lying, turned, bias, stride[::-1], 0, dilation[::-1], self.module.groups).transpose(2, 3)


class _OnTile(torch.autograd.Function):
    """Exchange and convolution in one, so that each can run while the other does."""

    @staticmethod
    def forward(
        ctx: Any, tile: Tensor, weight: Tensor, bias: Tensor | None, layer: Convolution, exchange: CountedExchange
    ) -> Tensor:
        found = layer.run(tile, weight, bias, exchange, keep_frame=True)
        ctx.save_for_backward(weight, bias)  # the frame is not saved: it is there until the next round
        ctx.layer, ctx.exchange, ctx.round = layer, exchange, exchange.rounds
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        layer, exchange, (weight, bias) = ctx.layer, ctx.exchange, ctx.saved_tensors
        exchange.check(ctx.round)
        of_tile, of_weight, of_bias = ctx.needs_input_grad[:3]
        frame = exchange.read(exchange.mine.need)
        grad_tile = grad_weight = grad_bias = None
        if of_tile:  # first, so that it can travel while the others are computed
            grad_frame, _, _ = layer.gradients(grad, frame, weight, bias, [True, False, False])
            exchange.start_adjoint(grad_frame)
            if not layer.overlaps:
                grad_tile = exchange.finish_adjoint()
        if of_weight or of_bias:
            _, grad_weight, grad_bias = layer.gradients(grad, frame, weight, bias, [False, of_weight, of_bias])
        if of_tile and layer.overlaps:
            grad_tile = exchange.finish_adjoint()
        return grad_tile, grad_weight, grad_bias, None, None
