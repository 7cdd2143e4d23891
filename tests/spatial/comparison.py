"""Comparison of a network on in-process ranks with the unsplit network."""

from __future__ import annotations

from copy import deepcopy
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from tessera.spatial import ParallelModel, parallelize
from tessera.transport.in_process import InProcessTransport, run_ranks

TOLERANCE = 1e-10


def run_on_ranks(model: nn.Module, mesh: str, image_size: Any, run: Any, **options: Any) -> list[Any]:
    """Call `run(parallel)` on every rank of a mesh, each with a copy of the model; return the results by rank."""

    def run_rank(transport: InProcessTransport) -> Any:
        parallel = parallelize(deepcopy(model), mesh, image_size=image_size, transport=transport, **options)
        return run(parallel)

    return run_ranks(prod(int(count) for count in mesh.split("x")), run_rank)


def check_agreement(
    model: nn.Module, mesh: str, image: Tensor, *, tolerance: float = TOLERANCE, **options: Any
) -> None:
    """Check that output, gradients of image and weights, and buffers of every rank equal the unsplit model's."""
    unsplit = deepcopy(model)
    leaf = image.clone().requires_grad_()
    expected = unsplit(leaf)
    direction = torch.randn_like(expected)
    (expected * direction).sum().backward()

    def run(parallel: ParallelModel) -> tuple[Tensor, Tensor | None, nn.Module]:
        own = image.clone().requires_grad_()
        output = parallel.gather(parallel(parallel.scatter(own)))
        (output * direction).sum().backward()
        return output.detach(), own.grad, parallel.model

    for output, grad, split in run_on_ranks(model, mesh, image.shape[2:], run, **options):
        check_close(output, expected, "output", tolerance)
        check_close(grad, leaf.grad, "gradient of the image", tolerance)
        check_same_training(split, unsplit, tolerance)


def check_same_training(split: nn.Module, unsplit: nn.Module, tolerance: float = TOLERANCE) -> None:
    """Check that two models have equal weights, gradients and buffers, up to `tolerance`."""
    weights = dict(unsplit.named_parameters())
    for name, weight in split.named_parameters():
        check_close(weight, weights[name], name, tolerance)
        check_close(weight.grad, weights[name].grad, f"gradient of {name}", tolerance)
    buffers = dict(unsplit.named_buffers())
    for name, buffer in split.named_buffers():
        check_close(buffer, buffers[name], name, tolerance)


def check_close(actual: Tensor | None, expected: Tensor | None, name: str, tolerance: float = TOLERANCE) -> None:
    """Check that two tensors differ by at most `tolerance` times the largest entry, or times 1 if that is larger."""
    if actual is None or expected is None:
        assert actual is expected, f"{name}: one of the two is None"
        return
    assert actual.shape == expected.shape, f"{name}: {tuple(actual.shape)} instead of {tuple(expected.shape)}"
    assert actual.dtype == expected.dtype, name
    if expected.numel():
        actual, expected = actual.detach().double(), expected.detach().double()  # booleans cannot be subtracted
        scale = max(1.0, expected.abs().max().item())
        error = (actual - expected).abs().max().item()
        assert error <= tolerance * scale, f"{name} has error {error:.3g}, its largest entry is {scale:.3g}"
