"""The callables that `tessera halo compute` times: split and unsplit convolution, exchange and convolution alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tessera.measure.sampler import Fn
from tessera.spatial.bench.exchange import make_exchange_calls, make_random_exchange
from tessera.spatial.bench.measurement import get_dtype
from tessera.spatial.distribution import Distribution, Overlap, SpatialSettings
from tessera.spatial.layers.convolution import CONVOLUTIONS, ConvNd, TileConvolution, build_convolution
from tessera.spatial.layers.layer import TileLayer
from tessera.spatial.problem import HaloProblem
from tessera.spatial.tensor.weights import all_reduce_tensors
from tessera.transport.all_reduce import HalfPrecisionSum
from tessera.transport.layout import CHANNELS_LAST_FORMATS
from tessera.transport.transport import Transport


class ComputeSteps:
    """Factory of the timed callables, with random pixels and weights; the weights are the same on every rank.

    A step is a forward pass and, with `backward`, a backward pass. A split step with `backward` includes the
    all-reduce of the weight gradients.
    """

    def __init__(
        self,
        problem: HaloProblem,
        transport: Transport,
        *,
        seed: int,
        channels_last: bool,
        backward: bool,
        fp16_allreduce: bool,
    ) -> None:
        self._problem, self._transport, self._last = problem, transport, channels_last
        self._backward = backward
        self._all_reduce = HalfPrecisionSum(transport) if fp16_allreduce else transport.all_reduce
        torch.manual_seed(seed)
        self._module = build_module(problem)
        self._module.weight = nn.Parameter(self._module.weight.contiguous(memory_format=self._format))
        self._placed = Distribution.of(problem.mesh, (problem.batch, *problem.image))
        self._automatic: TileLayer | None = None

    @property
    def _format(self) -> torch.memory_format:
        return get_memory_format(self._problem, channels_last=self._last)

    def make_exchange(self) -> Fn:
        """Return a callable that runs the exchange alone; with `backward` also its adjoint."""
        exchange = make_random_exchange(self._problem, self._transport, channels_last=self._last)
        return make_exchange_calls(exchange, backward=self._backward)["exchange"]

    def make_convolution(self) -> Fn:
        """Return a callable that convolves a complete frame, without an exchange."""
        exchange = make_random_exchange(self._problem, self._transport, channels_last=self._last)
        exchange.start()
        frame = exchange.finish().detach()
        if 0 in frame.shape:  # this rank has no output: more ranks than rows or columns
            return lambda: None
        module = self._module

        def forward(pixels: Tensor) -> Tensor:
            output: Tensor = CONVOLUTIONS[pixels.dim() - 2](
                pixels, module.weight, module.bias, module.stride, 0, module.dilation
            )
            return output

        return self._make_step(forward, frame)

    def make_split(self, overlap: Overlap) -> Fn:
        """Return a callable that convolves this rank's tile, with its exchange, in an overlap mode."""
        settings = SpatialSettings(
            transport=self._transport, mesh=self._problem.mesh, overlap=overlap, channels_last=self._last
        )
        layer = build_convolution(self._module, self._placed, settings)
        if overlap == "auto":
            self._automatic = layer
        box = self._placed.get_box(self._transport.rank)
        sample, *spatial = box.shape
        tile = torch.randn(sample, self._problem.in_channels, *spatial).to(get_dtype(self._problem.dtype))
        step = self._make_step(layer, tile.contiguous(memory_format=self._format))
        if not self._backward:
            return step

        def run_step_and_sum() -> None:
            step()
            self._sum_gradients()

        return run_step_and_sum

    @property
    def notes(self) -> tuple[str, ...]:
        """A note with the overlap order that `auto` chose; empty before the first call."""
        if not isinstance(self._automatic, TileConvolution):
            return ()
        return tuple(f"overlap auto: {order}" for order in self._automatic.chosen_orders)

    def make_unsplit(self) -> Fn:
        """Return a callable that convolves the whole image."""
        shape = (self._problem.batch, self._problem.in_channels, *self._problem.image)
        image = torch.randn(shape).to(get_dtype(self._problem.dtype))
        return self._make_step(self._module, image.contiguous(memory_format=self._format))

    def _make_step(self, function: Callable[[Tensor], Tensor], pixels: Tensor) -> Fn:
        if not self._backward:

            def forward() -> None:
                with torch.no_grad():
                    function(pixels)

            return forward
        leaf = pixels.requires_grad_()
        grad = torch.randn_like(function(leaf).detach())

        def run_forward_backward() -> None:
            leaf.grad = None
            self._module.zero_grad(set_to_none=True)
            torch.autograd.backward(function(leaf), grad)

        return run_forward_backward

    def _sum_gradients(self) -> None:
        weights = list(self._module.parameters())
        all_reduce_tensors([weight.grad for weight in weights], weights, self._all_reduce)


def build_module(problem: HaloProblem, dtype: torch.dtype | None = None) -> ConvNd:
    """Return the plain torch module of a problem, with weights from torch's current seed."""
    window = problem.window
    convolution: Any = nn.Conv2d if len(problem.image) == 2 else nn.Conv3d
    module: ConvNd = convolution(
        problem.in_channels,
        problem.out_channels,
        window.kernel,
        stride=window.stride,
        padding=tuple(before for before, _ in window.padding),
        dilation=window.dilation,
        padding_mode=problem.mode,
        dtype=dtype or get_dtype(problem.dtype),
    )
    return module


def get_memory_format(problem: HaloProblem, *, channels_last: bool) -> torch.memory_format:
    """Return the memory format of a problem's tensors."""
    return CHANNELS_LAST_FORMATS[len(problem.image) + 2] if channels_last else torch.contiguous_format
