"""The uncut convolution of a fresh random image, with its gradients: what every rank's part has to agree with."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tessera.geometry import Box
from tessera.spatial.bench.figures import dtype_of
from tessera.spatial.bench.problem import Problem
from tessera.spatial.bench.steps import convolution_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """Random pixels, weights and output gradient in the problem's dtype, and what plain torch makes of them.

    Numbers of 16 bits are computed with in float32, so that what is told apart is the cut and not the rounding.
    """

    sizes: Sizes

    image: Tensor
    padded: Tensor
    weight: Tensor
    bias: Tensor
    output: Tensor
    output_gradient: Tensor
    image_gradient: Tensor
    weight_gradient: Tensor
    bias_gradient: Tensor

    @classmethod
    def of(cls, problem: Problem, seed: int) -> Truth:
        """The same on every rank that gives the same seed."""
        dtype, exact = dtype_of(problem.dtype), exact_dtype(problem)
        draw = torch.Generator().manual_seed(seed)

        def random(*shape: int) -> Tensor:
            """Representable in the problem's dtype, and held in the one that is computed with."""
            return torch.randn(shape, generator=draw, dtype=exact).to(dtype).to(exact)

        image = random(problem.batch, problem.in_channels, *problem.image).requires_grad_()
        module = convolution_of(problem, exact)
        assert module.bias is not None
        with torch.no_grad():
            module.weight.copy_(random(*module.weight.shape))
            module.bias.copy_(random(*module.bias.shape))
        output = module(image)
        output_gradient = random(*output.shape)
        sizes = Sizes.of(module, image.detach(), output_gradient)
        output.backward(output_gradient)
        gradients = image.grad, module.weight.grad, module.bias.grad
        assert gradients[0] is not None
        assert gradients[1] is not None
        assert gradients[2] is not None
        (top, bottom), (left, right) = problem.window.padding
        mode = {"zeros": "constant"}.get(problem.mode, problem.mode)
        with torch.no_grad():
            padded = F.pad(image, (left, right, top, bottom), mode=mode)
        return cls(
            sizes=sizes,
            image=image.detach(),
            padded=padded,
            weight=module.weight.detach(),
            bias=module.bias.detach(),
            output=output.detach(),
            output_gradient=output_gradient,
            image_gradient=gradients[0],
            weight_gradient=gradients[1],
            bias_gradient=gradients[2],
        )

    def frame(self, problem: Problem, need: Box) -> Tensor:
        """What a rank reads whose output needs this box, padding included."""
        before = (0, *(pair[0] for pair in problem.window.padding))
        return part(self.padded, need.shifted(before))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How large each kind of result is by chance, which is what an error of it is held against.

    A result is a sum of random terms of either sign: its size is the root of the sum of their squares. Of few results,
    such as the gradient of a single bias, all may happen to be near zero, and say nothing of what rounding may do.
    """

    output: float
    image_gradient: float
    weight_gradient: float
    bias_gradient: float

    @classmethod
    def of(cls, module: nn.Conv2d, image: Tensor, output_gradient: Tensor) -> Sizes:
        """The convolution of the squares gives the sums of the squares, forward and backward."""
        squared = deepcopy(module)
        with torch.no_grad():
            for weight in squared.parameters():
                weight.square_()
        leaf = image.square().requires_grad_()
        output = squared(leaf)
        found = torch.autograd.grad(output, [leaf, *squared.parameters()], output_gradient.square())
        roots = [float(squares.detach().mean(dtype=torch.float64).sqrt()) for squares in (output, *found)]
        return cls(output=roots[0], image_gradient=roots[1], weight_gradient=roots[2], bias_gradient=roots[3])


def exact_dtype(problem: Problem) -> torch.dtype:
    """What the uncut convolution is computed in."""
    dtype = dtype_of(problem.dtype)
    return torch.float32 if dtype.itemsize < 4 else dtype


def part(tensor: Tensor, box: Box) -> Tensor:
    """A box of an image or of anything that lies like one."""
    if not box:
        return tensor[:0, :, :0, :0]
    sample, *spatial = box.slices
    return tensor[(sample, slice(None), *spatial)]
