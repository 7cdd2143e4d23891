"""Split tensors as `DTensor`s and back, differentiable in both directions.

A DTensor divides a dim into chunks of equal size, of which the last ones may be smaller or empty; tiles differ by at
most one pixel. Where chunks and tiles differ, the ranks exchange pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor

from tessera.errors import TesseraError
from tessera.geometry import Box, Interval
from tessera.spatial.tensor.boundary import change_layout, split_whole
from tessera.spatial.tensor.layout import TensorLayout, make_plain_layout
from tessera.spatial.tensor.split_tensor import SplitGroup, SplitTensor, redistribute

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Placement

_world_meshes: WeakKeyDictionary[Any, dict[tuple[str, tuple[int, ...]], DeviceMesh]] = WeakKeyDictionary()


class HasSplitGroup(Protocol):
    """Protocol of objects with a `SplitGroup`, such as `ParallelModel`."""

    @property
    def group(self) -> SplitGroup: ...


def to_dtensor(
    tensor: Tensor, mesh: DeviceMesh | None = None, placements: Sequence[Placement] | None = None
) -> DTensor:
    """Return a split tensor as a DTensor, differentiably.

    `mesh` is by default the `DeviceMesh` that `parallelize` was given, or a mesh of all ranks. `placements` are by
    default `Shard` of the last dims, as the image was split, and `Replicate` for tensors without pixels.
    """
    from torch.distributed.tensor import DTensor, Replicate, Shard

    if not isinstance(tensor, SplitTensor):
        raise TesseraError("not a split tensor", got=type(tensor).__name__, do="pass an output of a parallel network")
    group = tensor.group
    mesh = mesh or group.device_mesh
    if mesh is None:
        if len(_get_global_ranks(group)) != dist.get_world_size():
            raise TesseraError("no DeviceMesh for these ranks", do="pass mesh=…, or a DeviceMesh to `parallelize`")
        mesh = _open_world_mesh(tensor.device.type, group.mesh)
    if placements is None:
        pixels = tensor.dim() - 2
        has_pixels = pixels > 0 and not tensor.layout_on_ranks.is_whole
        first = tensor.dim() - min(mesh.ndim, max(pixels, 1))
        placements = [
            Shard(max(first, tensor.dim() - mesh.ndim + axis)) if has_pixels else Replicate()
            for axis in range(mesh.ndim)
        ]
    layout = _make_chunks(tensor.shape, mesh, placements, group)
    part: Tensor = _ToPart.apply(tensor, layout)  # type: ignore[no-untyped-call]
    strides = torch.empty(tensor.shape, device="meta").stride()
    return DTensor.from_local(part, mesh, placements, run_check=False, shape=tensor.shape, stride=strides)


def from_dtensor(tensor: DTensor, parallel: HasSplitGroup) -> Tensor:
    """Return a DTensor as a split tensor for a parallel network, differentiably.

    The DTensor may be sharded or replicated over any `DeviceMesh` of the network's ranks; `Partial` placements are
    all-reduced.
    """
    from torch.distributed.tensor import DTensor, Partial, Replicate

    if not isinstance(tensor, DTensor):
        raise TesseraError("not a DTensor", got=type(tensor).__name__)
    group, mesh = parallel.group, tensor.device_mesh
    summed = [Replicate() if isinstance(placement, Partial) else placement for placement in tensor.placements]
    layout = _make_chunks(tensor.shape, mesh, summed, group)
    if list(tensor.placements) != summed:
        tensor = tensor.redistribute(placements=summed)
    split = split_whole(tensor.to_local(grad_placements=summed), layout, group, is_part=True)
    return change_layout(split, group.get_tiles(layout.shape, tensor.dim() - 2)) if tensor.dim() > 2 else split


def _open_world_mesh(device: str, counts: tuple[int, ...]) -> DeviceMesh:
    """Return the mesh of all ranks, created once: programs that created equal meshes repeatedly were seen to hang."""
    from torch.distributed.device_mesh import init_device_mesh

    meshes = _world_meshes.setdefault(dist.group.WORLD, {})
    if (device, counts) not in meshes:
        meshes[device, counts] = init_device_mesh(device, counts)
    return meshes[device, counts]


def _get_global_ranks(group: SplitGroup) -> list[int]:
    """Return the global ranks of the processes of a group."""
    ranks: list[int] | None = getattr(group.transport, "global_ranks", None)
    if ranks is None:
        raise TesseraError("DTensors require ranks of torch.distributed", got=f"transport {group.transport.name}")
    return ranks


def _make_chunks(
    shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement], group: SplitGroup
) -> TensorLayout:
    """Return the layout of a DTensor: the box that each rank of the group holds."""
    from torch.distributed.tensor import Replicate, Shard

    ranks = _get_global_ranks(group)
    if sorted(mesh.mesh.flatten().tolist()) != sorted(ranks):
        raise TesseraError(
            "the DeviceMesh has other ranks than the parallel network", got=mesh.mesh.tolist(), allowed=f"ranks {ranks}"
        )
    if len(placements) != mesh.ndim:
        raise TesseraError(
            "wrong number of placements", got=list(placements), allowed=f"{mesh.ndim}, one per dim of the mesh"
        )
    for placement in placements:
        if type(placement) not in (Shard, Replicate):
            raise TesseraError("unsupported placement", got=placement, allowed="Shard, Replicate")
        if isinstance(placement, Shard) and not 0 <= placement.dim < len(shape):
            raise TesseraError("Shard dim out of range", got=placement, allowed=f"0 to {len(shape) - 1}")
    boxes = []
    for rank in ranks:
        place = (mesh.mesh == rank).nonzero()[0].tolist()
        intervals = [Interval(0, size) for size in shape]
        for placement, index, count in zip(placements, place, mesh.mesh.shape, strict=True):
            if isinstance(placement, Shard):
                intervals[placement.dim] = _get_chunk(intervals[placement.dim], index, count)
        boxes.append(Box(tuple(intervals)))
    return make_plain_layout(shape, boxes)


def _get_chunk(interval: Interval, index: int, count: int) -> Interval:
    """Return one of `count` chunks of an interval, as `torch.chunk` divides it.

    >>> [_get_chunk(Interval(0, 5), index, 4) for index in range(4)]
    [Interval(0:2), Interval(2:4), Interval(4:5), Interval(5:5)]
    """
    step = -(-len(interval) // count)
    start, stop = (min(interval.start + number * step, interval.stop) for number in (index, index + 1))
    return Interval(start, stop)


class _ToPart(torch.autograd.Function):
    """Redistribute a split tensor to a layout and return this rank's part as a plain tensor; backward, the reverse."""

    @staticmethod
    def forward(ctx: Any, tensor: SplitTensor, layout: TensorLayout) -> Tensor:
        ctx.source, ctx.target, ctx.group = tensor.layout_on_ranks, layout, tensor.group
        part = redistribute(tensor, layout, tensor.group)
        return part.clone(memory_format=torch.contiguous_format)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return change_layout(split_whole(grad, ctx.target, ctx.group, is_part=True), ctx.source), None
