"""The reference of a validation: the unsplit convolution of a random image, with its gradients."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tessera.geometry import Box
from tessera.spatial.bench.measurement import get_dtype
from tessera.spatial.bench.steps import build_module
from tessera.spatial.problem import HaloProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceResult:
    """Random pixels, weights and output gradient in the problem's dtype, and torch's results for the unsplit image.

    16-bit dtypes are computed in float32, so that the comparison detects errors of the split, not of rounding.
    """

    scales: ResultScales

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
    def of(cls, problem: HaloProblem, seed: int) -> ReferenceResult:
        """Compute the reference; equal seeds give equal references on all ranks."""
        dtype, exact = get_dtype(problem.dtype), get_exact_dtype(problem)
        draw = torch.Generator().manual_seed(seed)

        def random(*shape: int) -> Tensor:
            """Return random values that the problem's dtype can represent, in the dtype of the computation."""
            return torch.randn(shape, generator=draw, dtype=exact).to(dtype).to(exact)

        image = random(problem.batch, problem.in_channels, *problem.image).requires_grad_()
        module = build_module(problem, exact)
        assert module.bias is not None
        with torch.no_grad():
            module.weight.copy_(random(*module.weight.shape))
            module.bias.copy_(random(*module.bias.shape))
        output = module(image)
        output_gradient = random(*output.shape)
        scales = ResultScales.of(module, image.detach(), output_gradient)
        output.backward(output_gradient)
        gradients = image.grad, module.weight.grad, module.bias.grad
        assert gradients[0] is not None
        assert gradients[1] is not None
        assert gradients[2] is not None
        around = [side for pair in reversed(problem.window.padding) for side in pair]  # F.pad: the last dim first
        mode = {"zeros": "constant"}.get(problem.mode, problem.mode)
        with torch.no_grad():
            padded = F.pad(image, around, mode=mode)
        return cls(
            scales=scales,
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

    def get_frame(self, problem: HaloProblem, need: Box) -> Tensor:
        """Return the pixels and padding in the box `need`: the input that a rank's output reads."""
        before = (0, *(pair[0] for pair in problem.window.padding))
        return get_part(self.padded, need.shift(before))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultScales:
    """The typical magnitude of each kind of result. Errors are relative to this magnitude.

    A result is a sum of random terms of either sign, so its magnitude is the root of the sum of their squares. The
    actual values are unsuitable: if there are few, as in the gradient of a single bias, all may happen to be near zero.
    """

    output: float
    image_gradient: float
    weight_gradient: float
    bias_gradient: float

    @classmethod
    def of(cls, module: nn.Module, image: Tensor, output_gradient: Tensor) -> ResultScales:
        """Compute the scales. A convolution of squared values gives the sums of squares, forward and backward."""
        squared = deepcopy(module)
        with torch.no_grad():
            for weight in squared.parameters():
                weight.square_()
        leaf = image.square().requires_grad_()
        output = squared(leaf)
        gradients = torch.autograd.grad(output, [leaf, *squared.parameters()], output_gradient.square())
        roots = [float(squares.detach().mean(dtype=torch.float64).sqrt()) for squares in (output, *gradients)]
        return cls(output=roots[0], image_gradient=roots[1], weight_gradient=roots[2], bias_gradient=roots[3])


def get_exact_dtype(problem: HaloProblem) -> torch.dtype:
    """Return the dtype in which the reference is computed."""
    dtype = get_dtype(problem.dtype)
    return torch.float32 if dtype.itemsize < 4 else dtype


def get_part(tensor: Tensor, box: Box) -> Tensor:
    """Return the part of an image tensor that a box covers."""
    if not box:
        return tensor[(slice(0), slice(None), *(slice(0) for _ in box.dims[1:]))]
    sample, *spatial = box.slices
    return tensor[(sample, slice(None), *spatial)]
