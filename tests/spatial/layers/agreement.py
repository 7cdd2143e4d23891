"""Comparison of a layer on ranks with the unsplit module: outputs, gradients of input and weights, buffers."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tessera.geometry import Box, Mesh
from tessera.spatial.distribution import Distribution, Overlap, SpatialSettings
from tessera.spatial.layers.convolution import build_convolution
from tessera.spatial.layers.layer import TileLayer
from tessera.transport.in_process import InProcessTransport, run_ranks

MESHES = [Mesh(1, 1), Mesh(1, 2), Mesh(2, 1), Mesh(2, 2), Mesh(1, 3), Mesh(3, 2)]
TOLERANCE = 1e-10

meshes = st.sampled_from(MESHES)
seeds = st.integers(0, 2**32 - 1)
quick = hypothesis_settings(max_examples=40, deadline=None)


def copy_part(whole: Tensor, box: Box) -> Tensor:
    """Return a copy of the part of a tensor in a box."""
    sample, *spatial = box.slices
    return whole.detach()[(sample, slice(None), *spatial)].clone()


def check_close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=TOLERANCE, atol=TOLERANCE, check_stride=False)


def run_on_ranks(
    module: nn.Module,
    sizes: tuple[int, ...],
    mesh: Mesh,
    run: Callable[[Any, Any, InProcessTransport], Any],
    *,
    overlap: Overlap = "none",
    channels_last: bool = False,
) -> list[Any]:
    """Call `run(layer, module, transport)` on every rank, each with a copy of the module; `sizes` is (n, h, w)."""

    def run_rank(transport: InProcessTransport) -> Any:
        own = deepcopy(module)
        settings = SpatialSettings(transport=transport, mesh=mesh, overlap=overlap, channels_last=channels_last)
        return run(build_convolution(own, Distribution.of(mesh, sizes), settings), own, transport)

    return run_ranks(mesh.size, run_rank)


def check_agreement(
    module: nn.Module,
    shape: tuple[int, ...],
    mesh: Mesh,
    seed: int,
    *,
    overlap: Overlap = "none",
    channels_last: bool = False,
    of_image: bool = True,
    rounds: int = 2,
) -> None:
    """Check that split and unsplit results are equal in several rounds with new images and random weights."""
    torch.manual_seed(seed)
    module = deepcopy(module).double()
    with torch.no_grad():
        for weight in module.parameters():
            weight.normal_()
    layout = torch.channels_last if channels_last and len(shape) == 4 else torch.contiguous_format
    images = [torch.randn(shape, dtype=torch.float64).contiguous(memory_format=layout) for _ in range(rounds)]
    unsplit = deepcopy(module)
    leaves = [image.clone().requires_grad_(of_image) for image in images]
    outputs = [unsplit(leaf) for leaf in leaves]
    grads = [torch.randn_like(output) for output in outputs]
    for output, grad in zip(outputs, grads, strict=True):
        output.backward(grad)
    sizes = (shape[0], *shape[2:])
    inputs = Distribution.of(mesh, sizes)

    def run(layer: TileLayer, own: nn.Module, transport: InProcessTransport) -> Any:
        box, distribution = inputs.get_box(transport.rank), layer.distribution.get_box(transport.rank)
        results = []
        for image, grad in zip(images, grads, strict=True):
            tile = copy_part(image, box).requires_grad_(of_image)
            output = layer(tile)
            output.backward(copy_part(grad, distribution))
            results.append((output.detach(), tile.grad))
        return results, distribution, own

    # Compare here and not on the ranks: if a comparison failed on one rank, the other ranks would wait for it.
    parts = run_on_ranks(module, sizes, mesh, run, overlap=overlap, channels_last=channels_last)
    for rank, (results, distribution, own) in enumerate(parts):
        for (output, grad_tile), leaf, expected in zip(results, leaves, outputs, strict=True):
            check_close(output, copy_part(expected, distribution))
            if of_image:
                assert leaf.grad is not None
                check_close(grad_tile, copy_part(leaf.grad, inputs.get_box(rank)))
        for name, buffer in own.named_buffers():
            torch.testing.assert_close(buffer, unsplit.get_buffer(name), rtol=TOLERANCE, atol=TOLERANCE)
    for name, weight in unsplit.named_parameters():
        rank_grads = [own.get_parameter(name).grad for _, _, own in parts]
        assert all(grad is not None for grad in rank_grads), f"a rank has no gradient of {name}"
        assert weight.grad is not None
        check_close(sum(rank_grads), weight.grad)
