"""A network on ranks that are threads, held against the same network uncut."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from tessera.geometry import Mesh
from tessera.spatial import ParallelModel, parallelize
from tessera.transport.in_process import InProcessTransport, run_ranks

TOLERANCE = 1e-10


def ranks(model: nn.Module, mesh: str, image_size: Any, body: Any, **options: Any) -> list[Any]:
    """`body(parallel)` on every rank of a mesh, each with a copy of the model."""

    def rank(transport: InProcessTransport) -> Any:
        parallel = parallelize(deepcopy(model), mesh, image_size=image_size, transport=transport, **options)
        return body(parallel)

    return run_ranks(Mesh.parse(mesh).size, rank)


def agree(model: nn.Module, mesh: str, image: Tensor, *, tolerance: float = TOLERANCE, **options: Any) -> None:
    """Output, gradients of image and weights, and buffers are those of the uncut model, on every rank."""
    uncut = deepcopy(model)
    given = image.clone().requires_grad_()
    expected = uncut(given)
    direction = torch.randn_like(expected)
    (expected * direction).sum().backward()

    def body(parallel: ParallelModel) -> tuple[Tensor, Tensor | None, nn.Module]:
        own = image.clone().requires_grad_()
        output = parallel.gather(parallel(parallel.scatter(own)))
        (output * direction).sum().backward()
        return output.detach(), own.grad, parallel.model

    for output, grad, cut in ranks(model, mesh, image.shape[2:], body, **options):
        close(output, expected, "output", tolerance)
        close(grad, given.grad, "gradient of the image", tolerance)
        same_training(cut, uncut, tolerance)


def same_training(cut: nn.Module, uncut: nn.Module, tolerance: float = TOLERANCE) -> None:
    """The same weights, gradients and buffers."""
    weights = dict(uncut.named_parameters())
    for name, weight in cut.named_parameters():
        close(weight, weights[name], name, tolerance)
        close(weight.grad, weights[name].grad, f"gradient of {name}", tolerance)
    buffers = dict(uncut.named_buffers())
    for name, buffer in cut.named_buffers():
        close(buffer, buffers[name], name, tolerance)


def close(found: Tensor | None, expected: Tensor | None, what: str, tolerance: float = TOLERANCE) -> None:
    """Equal up to rounding, relative to the largest entry."""
    if found is None or expected is None:
        assert found is expected, f"{what}: one of the two has none"
        return
    assert found.shape == expected.shape, f"{what}: {tuple(found.shape)} instead of {tuple(expected.shape)}"
    assert found.dtype == expected.dtype, what
    if expected.numel():
        found, expected = found.detach().double(), expected.detach().double()  # truth values cannot be subtracted
        scale = max(1.0, expected.abs().max().item())
        off = (found - expected).abs().max().item()
        assert off <= tolerance * scale, f"{what} is off by {off:.3g}, its largest entry is {scale:.3g}"
