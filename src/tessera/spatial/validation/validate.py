"""Is what the ranks get what the uncut convolution gives? Every received pixel, the output and all gradients.

Exchanges and layers are made once and used for several rounds of fresh random pixels, weights and gradients: what is
left over from a round before, a border that is swapped or a hop that is missing cannot pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from tessera.geometry import Box
from tessera.spatial.bench.figures import dtype_of
from tessera.spatial.bench.problem import Problem
from tessera.spatial.bench.steps import convolution_of
from tessera.spatial.layers.convolution import convolution
from tessera.spatial.layers.layer import Layer
from tessera.spatial.network.gradients import summed
from tessera.spatial.placed import Overlap, Placed, Settings
from tessera.spatial.validation.truth import Truth, part
from tessera.transport.exchange import Exchange
from tessera.transport.transport import Transport

# of the size that what is compared has by chance; received pixels have to be the same to the last bit
TOLERANCE = {"float64": 1e-10, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that is not as it should be: what, in which box of the image, how far off, and when."""

    what: str
    box: Box | None
    off: float
    when: str

    def __str__(self) -> str:
        where = f" of {self.box!r}" if self.box is not None else ""
        return f"{self.what}{where} off by {self.off:.2g} ({self.when})"


@dataclass(slots=True, kw_only=True)
class Verdict:
    """What one rank found: its faults, and the largest error of each kind of result."""

    rank: int
    faults: list[Fault] = field(default_factory=list)
    errors: dict[str, float] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return not self.faults

    def __str__(self) -> str:
        if self.passed:
            return f"Validation passed for rank: {self.rank}"
        more = f", and {len(self.faults) - 1} more" if len(self.faults) > 1 else ""
        return f"Validation failed for rank: {self.rank}: {self.faults[0]}{more}"


def validate(
    problem: Problem,
    transport: Transport,
    *,
    overlaps: Sequence[Overlap],
    layouts: Sequence[str],
    rounds: int,
    seed: int,
) -> Verdict:
    """This rank's verdict; every rank calls it alike, with the same seed."""
    verdict = Verdict(rank=transport.rank)
    module = convolution_of(problem)
    sides = [_Side(problem, transport, module, overlaps, layout) for layout in layouts]
    for number in range(rounds):
        truth = Truth.of(problem, seed + number)
        with torch.no_grad():
            module.weight.copy_(truth.weight)
            assert module.bias is not None
            module.bias.copy_(truth.bias)
        for side in sides:
            side.check_pixels(truth, verdict, f"round {number + 1}")
            side.check_layers(truth, verdict, f"round {number + 1}")
    return verdict


class _Side:
    """One rank's exchange and layers in one layout."""

    def __init__(
        self,
        problem: Problem,
        transport: Transport,
        module: nn.Conv2d,
        overlaps: Sequence[Overlap],
        layout: str,
    ) -> None:
        self._problem, self._transport, self._module, self._layout = problem, transport, module, layout
        last = layout == "channels_last"
        self._format = torch.channels_last if last else torch.contiguous_format
        self._plan = problem.plan()
        self._exchange = Exchange(
            transport,
            self._plan,
            channels=problem.in_channels,
            dtype=dtype_of(problem.dtype),
            channels_last=last,
        )
        placed = Placed.of("tiles", problem.mesh, (problem.batch, *problem.image))
        self._layers: dict[Overlap, Layer] = {}
        for overlap in overlaps:
            settings = Settings(transport=transport, mesh=problem.mesh, overlap=overlap, channels_last=last)
            self._layers[overlap] = convolution(module, placed, settings)

    def check_pixels(self, truth: Truth, verdict: Verdict, when: str) -> None:
        """Everything that the output reads: what was received, what was kept, and the padding."""
        mine = self._exchange.mine
        self._exchange.start(self._tile(truth))
        got = self._exchange.finish()
        want = truth.frame(self._problem, mine.need).to(got.dtype)
        verdict.errors.setdefault("pixels", 0.0)
        if torch.equal(got, want):
            return
        boxes = [("received pixels", move.placed & mine.need) for move in mine.receives]
        boxes += [("kept pixels", move.placed & mine.need) for move in mine.keeps]
        views = {(what, box): [part(pixels, box.within(mine.need)) for pixels in (got, want)] for what, box in boxes}
        wrong = [key for key, (seen, meant) in views.items() if not torch.equal(seen, meant)]
        for what, box in wrong or [("padding", mine.need)]:
            seen, meant = views.get((what, box), [got, want])
            off = float((seen.double() - meant.double()).abs().max())
            verdict.errors["pixels"] = max(verdict.errors["pixels"], off)
            verdict.faults.append(Fault(what=what, box=box, off=off, when=f"{when}, {self._layout}"))

    def check_layers(self, truth: Truth, verdict: Verdict, when: str) -> None:
        """Output and gradients, in every way to overlap them with the exchange."""
        inputs, outputs = self._plan.inputs.hull(verdict.rank), self._plan.outputs.hull(verdict.rank)
        weight, bias = self._module.weight, self._module.bias
        assert bias is not None
        for overlap, layer in self._layers.items():
            tile = self._tile(truth).requires_grad_()
            self._module.zero_grad(set_to_none=True)
            output = layer(tile)
            torch.autograd.backward(output, part(truth.output_gradient, outputs).to(output.dtype))
            gradients = [weight.grad, bias.grad]
            weight_gradient, bias_gradient = summed(gradients, [weight, bias], self._transport.all_reduce)
            sizes = truth.sizes
            compared: list[tuple[str, Tensor | None, Tensor, Box | None, float]] = [
                ("output", output.detach(), truth.output, outputs, sizes.output),
                ("input gradient", tile.grad, truth.image_gradient, inputs, sizes.image_gradient),
                ("weight gradient", weight_gradient, truth.weight_gradient, None, sizes.weight_gradient),
                ("bias gradient", bias_gradient, truth.bias_gradient, None, sizes.bias_gradient),
            ]
            for what, got, whole, box, size in compared:
                off = _relative(got, whole if box is None else part(whole, box), size)
                verdict.errors[what] = max(verdict.errors.get(what, 0.0), off)
                if not off <= TOLERANCE[self._problem.dtype]:
                    said = f"{when}, {self._layout}, overlap {overlap}"
                    verdict.faults.append(Fault(what=what, box=box, off=off, when=said))

    def _tile(self, truth: Truth) -> Tensor:
        pixels = part(truth.image, self._exchange.mine.owned)
        return pixels.to(dtype_of(self._problem.dtype)).clone(memory_format=self._format)


def _relative(got: Tensor | None, want: Tensor, size: float) -> float:
    """The largest difference, as a part of the size that the result has by chance."""
    if got is None or got.shape != want.shape:
        return float("inf") if want.numel() else 0.0
    if not want.numel():
        return 0.0
    return float((got.double() - want.double()).abs().max()) / max(size, 1e-30)
