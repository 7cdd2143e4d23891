"""The steps that `tessera halo compute` times, made once: a convolution cut, uncut, and its parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tessera.measure.sampler import Fn
from tessera.spatial.bench.exchange import exchange_calls, random_exchange
from tessera.spatial.bench.figures import dtype_of
from tessera.spatial.bench.problem import Problem
from tessera.spatial.layers.convolution import Convolution, convolution
from tessera.spatial.layers.layer import Layer
from tessera.spatial.network.gradients import summed
from tessera.spatial.placed import Overlap, Placed, Settings
from tessera.transport.half_sum import HalfSum
from tessera.transport.transport import Transport


class Steps:
    """Callables over random pixels and weights; the weights are the same on every rank.

    A step is forward, and with `backward` also backward; of the cut convolution then with the sum of the weights'
    gradients over the ranks.
    """

    def __init__(
        self,
        problem: Problem,
        transport: Transport,
        *,
        seed: int,
        channels_last: bool,
        backward: bool,
        fp16_allreduce: bool,
    ) -> None:
        self._problem, self._transport, self._last = problem, transport, channels_last
        self._backward = backward
        self._add = HalfSum(transport) if fp16_allreduce else transport.all_reduce
        torch.manual_seed(seed)
        self._module = convolution_of(problem)
        self._module.weight = nn.Parameter(self._module.weight.contiguous(memory_format=self._format))
        self._placed = Placed.of("tiles", problem.mesh, (problem.batch, *problem.image))
        self._automatic: Layer | None = None

    @property
    def _format(self) -> torch.memory_format:
        return torch.channels_last if self._last else torch.contiguous_format

    def exchange(self) -> Fn:
        """The exchange alone; with backward also its adjoint."""
        exchange = random_exchange(self._problem, self._transport, channels_last=self._last)
        return exchange_calls(exchange, backward=self._backward)["exchange"]

    def convolution(self) -> Fn:
        """The convolution of what an exchange would bring, all of it in place."""
        exchange = random_exchange(self._problem, self._transport, channels_last=self._last)
        exchange.start()
        frame = exchange.finish().detach()
        if 0 in frame.shape:  # more ranks than the output has rows or columns
            return lambda: None
        module = self._module

        def forward(pixels: Tensor) -> Tensor:
            return F.conv2d(pixels, module.weight, module.bias, module.stride, 0, module.dilation)

        return self._step(forward, frame)

    def cut(self, overlap: Overlap) -> Fn:
        """The convolution of this rank's tile, with its exchange."""
        settings = Settings(
            transport=self._transport, mesh=self._problem.mesh, overlap=overlap, channels_last=self._last
        )
        layer = convolution(self._module, self._placed, settings)
        if overlap == "auto":
            self._automatic = layer
        box = self._placed.box(self._transport.rank)
        sample, *spatial = box.shape
        tile = torch.randn(sample, self._problem.in_channels, *spatial).to(dtype_of(self._problem.dtype))
        step = self._step(layer, tile.contiguous(memory_format=self._format))
        if not self._backward:
            return step

        def whole() -> None:
            step()
            self._sum_gradients()

        return whole

    @property
    def notes(self) -> tuple[str, ...]:
        """What the automatic overlap has settled on, once it was called."""
        if not isinstance(self._automatic, Convolution):
            return ()
        return tuple(f"overlap auto: {order}" for order in self._automatic.chosen)

    def uncut(self) -> Fn:
        """The same convolution of the whole image, without a cut."""
        shape = (self._problem.batch, self._problem.in_channels, *self._problem.image)
        image = torch.randn(shape).to(dtype_of(self._problem.dtype))
        return self._step(self._module, image.contiguous(memory_format=self._format))

    def _step(self, function: Callable[[Tensor], Tensor], pixels: Tensor) -> Fn:
        if not self._backward:

            def forward() -> None:
                with torch.no_grad():
                    function(pixels)

            return forward
        leaf = pixels.requires_grad_()
        grad = torch.randn_like(function(leaf).detach())

        def both() -> None:
            leaf.grad = None
            self._module.zero_grad(set_to_none=True)
            torch.autograd.backward(function(leaf), grad)

        return both

    def _sum_gradients(self) -> None:
        weights = list(self._module.parameters())
        summed([weight.grad for weight in weights], weights, self._add)


def convolution_of(problem: Problem, dtype: torch.dtype | None = None) -> nn.Conv2d:
    """The plain module of a problem, with weights drawn from torch's own seed."""
    window = problem.window
    return nn.Conv2d(
        problem.in_channels,
        problem.out_channels,
        _two(window.kernel),
        stride=_two(window.stride),
        padding=_two([before for before, _ in window.padding]),
        dilation=_two(window.dilation),
        padding_mode=problem.mode,
        dtype=dtype or dtype_of(problem.dtype),
    )


def _two(values: Sequence[int]) -> tuple[int, int]:
    height, width = values
    return height, width
