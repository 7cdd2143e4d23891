"""A layer cut over ranks against the same module uncut: outputs, gradients of the input, the weights, buffers."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tessera.geometry import Box, Mesh
from tessera.spatial.layers import Layer, layer_of
from tessera.spatial.placed import Kind, Overlap, Placed, Settings
from tessera.transport.in_process import InProcessTransport, run_ranks

MESHES = [Mesh(1, 1), Mesh(1, 2), Mesh(2, 1), Mesh(2, 2), Mesh(1, 3), Mesh(3, 2)]
TOLERANCE = 1e-10

meshes = st.sampled_from(MESHES)
seeds = st.integers(0, 2**32 - 1)
quick = hypothesis_settings(max_examples=40, deadline=None)


def cut(whole: Tensor, box: Box) -> Tensor:
    """A rank's own copy of its part."""
    sample, *spatial = box.slices
    return whole.detach()[(sample, slice(None), *spatial)].clone()


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=TOLERANCE, atol=TOLERANCE, check_stride=False)


def on_ranks(
    module: nn.Module,
    sizes: tuple[int, ...],
    mesh: Mesh,
    run: Callable[[Any, Any, InProcessTransport], Any],
    *,
    kind: Kind = "tiles",
    overlap: Overlap = "none",
    channels_last: bool = False,
) -> list[Any]:
    """Call a function on every rank with the layer of its own copy of a module, for images of sizes (n, h, w)."""

    def one(transport: InProcessTransport) -> Any:
        own = deepcopy(module)
        settings = Settings(transport=transport, mesh=mesh, overlap=overlap, channels_last=channels_last)
        return run(layer_of(own, Placed.of(kind, mesh, sizes), settings, "part.layer"), own, transport)

    return run_ranks(mesh.size, one)


def agrees(
    module: nn.Module,
    shape: tuple[int, ...],
    mesh: Mesh,
    seed: int,
    *,
    kind: Kind = "tiles",
    overlap: Overlap = "none",
    channels_last: bool = False,
    of_image: bool = True,
    rounds: int = 2,
) -> None:
    """Assert that a module gives the same cut and uncut, round after round with fresh images and random weights."""
    torch.manual_seed(seed)
    module = deepcopy(module).double()
    with torch.no_grad():
        for weight in module.parameters():
            weight.normal_()
    layout = torch.channels_last if channels_last and len(shape) == 4 else torch.contiguous_format
    images = [torch.randn(shape, dtype=torch.float64).contiguous(memory_format=layout) for _ in range(rounds)]
    uncut = deepcopy(module)
    leaves = [image.clone().requires_grad_(of_image) for image in images]
    outputs = [uncut(leaf) for leaf in leaves]
    grads = [torch.randn_like(output) for output in outputs]
    for output, grad in zip(outputs, grads, strict=True):
        output.backward(grad)
    sizes = (shape[0], *shape[2:])
    given = Placed.of(kind, mesh, sizes)

    def run(layer: Layer, own: nn.Module, transport: InProcessTransport) -> Any:
        box, placed = given.box(transport.rank), layer.placed.box(transport.rank)
        found = []
        for image, grad in zip(images, grads, strict=True):
            tile = cut(image, box).requires_grad_(of_image)
            output = layer(tile)
            output.backward(cut(grad, placed))
            found.append((output.detach(), tile.grad))
        return found, placed, own

    # compared here and not on the ranks: one that fails would leave the others waiting for it
    parts = on_ranks(module, sizes, mesh, run, kind=kind, overlap=overlap, channels_last=channels_last)
    for rank, (found, placed, own) in enumerate(parts):
        for (output, grad_tile), leaf, expected in zip(found, leaves, outputs, strict=True):
            close(output, cut(expected, placed))
            if of_image:
                assert leaf.grad is not None
                close(grad_tile, cut(leaf.grad, given.box(rank)))
        for name, buffer in own.named_buffers():
            torch.testing.assert_close(buffer, uncut.get_buffer(name), rtol=TOLERANCE, atol=TOLERANCE)
    for name, weight in uncut.named_parameters():
        each = [own.get_parameter(name).grad for _, _, own in parts]
        assert all(grad is not None for grad in each), f"a rank has no gradient of {name}"
        assert weight.grad is not None
        close(each[0] if kind == "whole" else sum(each), weight.grad)  # of whole images each rank has all of it
