"""Comparison of a module on split tensors with the module on plain tensors: outputs, gradients, buffers."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Literal

import torch
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tessera.spatial.tensor.boundary import join_parts, split_whole
from tessera.spatial.tensor.layout import TensorLayout, make_whole, split_dims_evenly
from tessera.spatial.tensor.split_tensor import SplitGroup
from tessera.transport.in_process import InProcessTransport, run_ranks

MeshCounts = tuple[int, ...]
MESHES: list[MeshCounts] = [(1, 1), (1, 2), (2, 1), (2, 2), (1, 3), (3, 2), (2,)]
TOLERANCE = 1e-10
Kind = Literal["tiles", "samples", "channels", "whole"]

meshes = st.sampled_from(MESHES)
seeds = st.integers(0, 2**32 - 1)
quick = hypothesis_settings(max_examples=40, deadline=None)


def make_layout_of_kind(kind: Kind, shape: tuple[int, ...], group: SplitGroup) -> TensorLayout:
    if kind == "tiles":
        return group.get_tiles(shape, len(shape) - 2)
    if kind == "whole":
        return make_whole(shape, group.ranks)
    return split_dims_evenly(shape, (0 if kind == "samples" else 1,), (group.ranks,))


def split(whole: Tensor, group: SplitGroup, kind: Kind = "tiles") -> Tensor:
    """Return a plain tensor as a split tensor."""
    return split_whole(whole, make_layout_of_kind(kind, tuple(whole.shape), group), group)


class Applied(nn.Module):
    """A module that applies a function; with `weights`, the function also gets a weight of that shape."""

    def __init__(self, function: Callable[..., Tensor], weights: tuple[int, ...] | None = None) -> None:
        super().__init__()
        self.function, self.weight = function, None if weights is None else nn.Parameter(torch.zeros(weights))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x) if self.weight is None else self.function(x, self.weight)


def check_close(actual: Tensor | None, expected: Tensor | None, tolerance: float = TOLERANCE) -> None:
    if actual is None or expected is None:
        assert actual is expected
        return
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance, check_stride=False)


def run_on_ranks(mesh: MeshCounts, run: Callable[[SplitGroup], Any], **options: Any) -> list[Any]:
    """Call `run(group)` on every rank of a mesh; return the results by rank. `options` are those of the group."""

    def run_rank(transport: InProcessTransport) -> Any:
        return run(SplitGroup(transport, mesh, **options))

    size = 1
    for count in mesh:
        size *= count
    return run_ranks(size, run_rank)


def check_agreement(
    module: nn.Module,
    shape: tuple[int, ...],
    mesh: MeshCounts,
    seed: int,
    *,
    kind: Kind = "tiles",
    channels_last: bool = False,
    of_image: bool = True,
    rounds: int = 2,
    tolerance: float = TOLERANCE,
    **options: Any,
) -> None:
    """Check that split and plain results are equal; all forwards run before the first backward."""
    torch.manual_seed(seed)
    module = deepcopy(module).double()
    with torch.no_grad():
        for weight in module.parameters():
            weight.normal_()
    memory_format = torch.channels_last if channels_last and len(shape) == 4 else torch.contiguous_format
    images = [torch.randn(shape, dtype=torch.float64).contiguous(memory_format=memory_format) for _ in range(rounds)]
    plain = deepcopy(module)
    leaves = [image.clone().requires_grad_(of_image) for image in images]
    outputs = [plain(leaf) for leaf in leaves]
    grads = [torch.randn_like(output) for output in outputs]
    for output, grad in zip(outputs, grads, strict=True):
        if output.requires_grad:
            output.backward(grad)

    def run(group: SplitGroup) -> Any:
        own = deepcopy(module)
        for weight in own.parameters():
            weight.register_hook(join_parts)
        layout = make_layout_of_kind(kind, shape, group)
        own_leaves = [image.clone().requires_grad_(of_image) for image in images]
        results = [own(split_whole(leaf, layout, group)) for leaf in own_leaves]
        for output, grad in zip(results, grads, strict=True):
            if output.requires_grad:
                (output * grad).sum().backward()
        return [join_parts(output).detach() for output in results], [leaf.grad for leaf in own_leaves], own

    # Compare here and not on the ranks: if a comparison failed on one rank, the other ranks would wait for it.
    for results, leaf_grads, own in run_on_ranks(mesh, run, **options):
        for output, grad, leaf, expected in zip(results, leaf_grads, leaves, outputs, strict=True):
            check_close(output, expected.detach(), tolerance)
            check_close(grad, leaf.grad, tolerance)
        for name, buffer in own.named_buffers():
            check_close(buffer, plain.get_buffer(name), tolerance)
        for name, weight in own.named_parameters():
            check_close(weight.grad, plain.get_parameter(name).grad, tolerance)
