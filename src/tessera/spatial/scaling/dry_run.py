"""A dry run: one rank's part of a step of a network, computed on shapes alone.

The network runs on split tensors by the rules of `parallelize`, but on the meta device, where tensors have shapes and
no values, and over a transport without peers. All ranks run the same operations in the same order, so one rank is
enough, and images of any size and meshes of many ranks are possible. Everything that the rank computes and moves is
recorded: the FLOPs and bytes of local operations, the traffic of transfers, all-reduces, and the memory in use.

A step runs twice, and the second run is recorded: as in a real run, the first run plans transfers and allocates
buffers.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from tessera.errors import Refused, TesseraError, get_first_line
from tessera.geometry import Box
from tessera.models import build_layers
from tessera.spatial.cost import Traffic
from tessera.spatial.tensor.boundary import join_parts, split_whole
from tessera.spatial.tensor.gradient_buckets import BUCKET_BYTES
from tessera.spatial.tensor.layout import TensorLayout
from tessera.spatial.tensor.split_tensor import SplitGroup, SplitTensor
from tessera.spatial.tensor.trace_log import LoggedOperation
from tessera.spatial.tensor.transfer import Transfer
from tessera.transport.all_reduce import SUM_TYPES
from tessera.transport.transport import Strip, Transport, TransportTraits

# Operations that allocate memory without reading or writing it.
ALLOCATIONS = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOperation:
    """One operation on the rank's own tensors: its FLOPs, and the bytes that it reads and writes."""

    name: str
    flops: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTransfer:
    """One transfer between all ranks: the elements of each link, and the bytes of an element."""

    traffic: Traffic
    item_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """Computation, communication and memory of one rank in a step of a network whose image is split over a mesh.

    `statistics` and `gradients` are the bytes of all-reduces over the mesh, one entry per all-reduce. `dispatches` is
    the number of operations on split tensors. `activation_bytes` are kept for backward; `halo_bytes` are buffers and
    frames of transfers; `temporary_bytes` is the remaining memory of the step at its peak.
    """

    image: tuple[int, ...]
    mesh: tuple[int, ...]
    tile: tuple[int, ...]
    batch: int
    training: bool
    operations: tuple[LocalOperation, ...]
    transfers: tuple[RunTransfer, ...]
    statistics: tuple[int, ...]
    gradients: tuple[int, ...]
    dispatches: int
    weight_bytes: int
    gradient_bytes: int
    activation_bytes: int
    halo_bytes: int
    temporary_bytes: int
    log: tuple[LoggedOperation, ...]


@lru_cache(maxsize=64)  # strong and weak scaling, and the plans of several machines, share runs
def run_model_dry(
    model: str,
    image: tuple[int, ...],
    mesh: tuple[int, ...],
    *,
    batch: int = 1,
    channels: int = 3,
    dtype: str = "float32",
    training: bool = True,
) -> DryRun:
    """Run a step of a model (a registered name or `module:callable`) on shapes alone; see `run_dry`."""
    return run_dry(build_layers(model), image, mesh, batch=batch, channels=channels, dtype=dtype, training=training)


def run_dry(
    module: nn.Module,
    image: Sequence[int],
    mesh: Sequence[int],
    *,
    batch: int = 1,
    channels: int = 3,
    dtype: str = "float32",
    training: bool = True,
) -> DryRun:
    """Run a training or inference step of a network on shapes alone, for the rank in the middle of the mesh.

    `image` is the size of the images in pixels, such as (height, width). The network is moved to the meta device: it
    cannot compute later. Raises Refused if it needs values, for example for a branch on a result.
    """
    kind = getattr(torch, dtype)
    module = module.to(device="meta", dtype=kind).train(training)
    counts = tuple(mesh)
    rank = _find_middle_rank(counts)
    transport = DryTransport(rank, prod(counts))
    memory = _Memory()
    recorder = _Recorder(memory)
    group = DryGroup(transport, counts, recorder)
    whole = torch.empty((batch, channels, *image), dtype=kind, device="meta")
    try:
        layout = group.get_tiles(whole.shape, len(image))
        with torch.device("meta"), recorder, memory.exclude_gradients(module), _hook_gradients(module):
            tile = split_whole(whole, layout, group)
            del whole
            _run_step(module, tile, training, lambda: None)
            recorder.clear()
            transport.sums.clear()
            group.gradients.clear()
            before = memory.live
            memory.peak = before
            kept = before

            def note_forward() -> None:
                nonlocal kept
                kept = memory.live

            with group.log.record(module):
                _run_step(module, tile, training, note_forward)
    except TesseraError:
        raise
    except (RuntimeError, NotImplementedError, ValueError, TypeError, IndexError) as error:
        raise Refused(
            f"the model cannot be run on shapes of this image alone: {get_first_line(error)}",
            got="x".join(map(str, (batch, channels, *image))),
            do="check --image-size and --in-channels; a model that branches on values cannot be predicted",
        ) from None
    halos = transport.buffer_bytes + group.count_scratch_bytes()
    state = [*module.parameters(), *module.buffers()]
    return DryRun(
        image=tuple(image),
        mesh=counts,
        tile=layout.get_local_shape(rank)[2:],
        batch=batch,
        training=training,
        operations=tuple(recorder.operations),
        transfers=tuple(recorder.transfers),
        statistics=tuple(transport.sums),
        gradients=pack_buckets(group.gradients),
        dispatches=recorder.dispatches,
        weight_bytes=sum(tensor.nbytes for tensor in state),
        gradient_bytes=sum(p.nbytes for p in module.parameters() if p.requires_grad) if training else 0,
        activation_bytes=max(0, kept - halos) if training else 0,
        halo_bytes=halos,
        temporary_bytes=max(0, memory.peak - (max(kept, halos) if training else halos)),
        log=tuple(group.log.take()),
    )


def _run_step(module: nn.Module, tile: Tensor, training: bool, note_forward: Callable[[], None]) -> None:
    """Run forward and, if training, the backward pass of the sum of all outputs."""
    with torch.set_grad_enabled(training):
        output = module(tile)
        note_forward()
        if not training:
            return
        losses = [leaf.sum() for leaf in tree_leaves(output) if isinstance(leaf, Tensor) and leaf.requires_grad]
        if not losses:
            raise Refused("no output of the model depends on its weights, so there is no training step")
        del output
        total = sum(losses[1:], losses[0])
        del losses
        total.backward()  # type: ignore[no-untyped-call]
        for parameter in module.parameters():
            parameter.grad = None


def _find_middle_rank(mesh: Sequence[int]) -> int:
    """Return the rank in the middle of a mesh, which has the most neighbours.

    >>> _find_middle_rank((2, 2)), _find_middle_rank((3, 3)), _find_middle_rank((1, 4))
    (0, 4, 1)
    """
    rank = 0
    for count in mesh:
        rank = rank * count + (count - 1) // 2
    return rank


@contextmanager
def _hook_gradients(module: nn.Module) -> Iterator[None]:
    """Register hooks that convert weight gradients to plain tensors, as `parallelize` does."""
    handles = [p.register_hook(join_parts) for p in module.parameters() if p.requires_grad]  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class DryTransport:
    """A transport of one rank without peers: its buffers are meta tensors, and all-reduces are only recorded."""

    name = "dry"
    traits = TransportTraits(messages="")

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.sums: list[int] = []
        self.buffer_bytes = 0

    def empty(self, count: int, dtype: torch.dtype) -> Tensor:
        self.buffer_bytes += count * dtype.itemsize
        return torch.empty(count, dtype=dtype, device="meta")

    def free(self, memory: Tensor) -> None:
        """Do nothing, because the memory does not exist."""

    def connect(self, sends: Sequence[Strip], receives: Sequence[Strip]) -> _DryConnection:
        return _DryConnection()

    def all_reduce(self, values: Tensor) -> None:
        self.sums.append(count_summed_bytes(values))

    def barrier(self) -> None:
        """Do nothing, because there are no peers."""

    def close(self) -> None:
        """Do nothing, because the transport has no resources to release."""


class _DryConnection:
    def wait_until_sent(self) -> None:
        """Do nothing."""

    def start(self) -> None:
        """Do nothing."""

    def finish(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def count_summed_bytes(values: Tensor) -> int:
    """Return the bytes of an all-reduce; 8-bit and 16-bit dtypes are summed in a wider dtype."""
    return values.numel() * SUM_TYPES.get(values.dtype, values.dtype).itemsize


def pack_buckets(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the bytes of each message in which gradients of these sizes are summed.

    >>> pack_buckets([10, 20 << 20, 20 << 20, 30])
    (41943050, 30)
    """
    buckets = [0]
    for size in sizes:
        buckets[-1] += size
        if buckets[-1] >= BUCKET_BYTES:
            buckets.append(0)
    return tuple(size for size in buckets if size)


class DryGroup(SplitGroup):
    """A group of ranks of which only one rank exists; its transfers are recorded."""

    def __init__(self, transport: DryTransport, mesh: Sequence[int], recorder: _Recorder) -> None:
        super().__init__(transport, mesh)
        self.gradients: list[int] = []
        self.add_weights = lambda values: self.gradients.append(count_summed_bytes(values))
        self._recorder = recorder

    def _make_transfer(self, source: TensorLayout, needs: tuple[Box, ...]) -> Transfer:
        return _RecordedTransfer(source, needs, self.transport, self._recorder)

    def count_scratch_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self._scratch.values())


class _RecordedTransfer(Transfer):
    """A transfer that records its traffic whenever it runs."""

    def __init__(self, source: TensorLayout, needs: Sequence[Box], transport: Transport, recorder: _Recorder) -> None:
        super().__init__(source, needs, transport)
        self._recorder = recorder
        self._traffic = Traffic.from_links(source.ranks, self.links)

    def _get_line(self, tile: Tensor) -> Any:
        self._recorder.transfers.append(RunTransfer(traffic=self._traffic, item_bytes=tile.itemsize))
        return super()._get_line(tile)


class _Memory:
    """The bytes of all tensors alive, except weights and their final gradients."""

    def __init__(self) -> None:
        self.live = self.peak = 0
        self._sizes: dict[int, int] = {}

    def add(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._sizes:
            self._sizes[key] = storage.nbytes()
            self.live += storage.nbytes()
            self.peak = max(self.peak, self.live)
            weakref.finalize(storage, self._free, key).atexit = False

    def _free(self, key: int) -> None:
        self.live -= self._sizes.pop(key, 0)

    @contextmanager
    def exclude_gradients(self, module: nn.Module) -> Iterator[None]:
        """Exclude complete weight gradients from the count; they are counted separately."""

        def exclude(parameter: Tensor) -> None:
            assert parameter.grad is not None
            key = parameter.grad.untyped_storage()._cdata
            self.live -= self._sizes.get(key, 0)
            self._sizes[key] = 0

        handles = [
            p.register_post_accumulate_grad_hook(exclude)  # type: ignore[no-untyped-call]
            for p in module.parameters()
            if p.requires_grad
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that records the operations on the rank's own tensors, below the rules of split tensors."""

    def __init__(self, memory: _Memory) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._memory = memory
        self.operations: list[LocalOperation] = []
        self.transfers: list[RunTransfer] = []
        self.dispatches = 0

    def clear(self) -> None:
        """Discard all records."""
        self.operations.clear()
        self.transfers.clear()
        self.dispatches = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if SplitTensor in types:
            self.dispatches += 1
            return NotImplemented  # its rule runs next, and this mode sees the operations of the rule
        result = func(*args, **(kwargs or {}))
        outputs = _list_tensors(result)
        for output in outputs:
            self._memory.add(output)
        inputs = _list_tensors((args, kwargs))
        name = func._overloadpacket.__name__
        if not outputs or name in ALLOCATIONS or _is_alias(func, inputs, outputs):
            return result
        count = flop_registry.get(func._overloadpacket)
        distinct = {id(tensor): tensor for tensor in (*inputs, *outputs)}
        self.operations.append(
            LocalOperation(
                name=name,
                flops=int(count(*args, **(kwargs or {}), out_val=result)) if count else 0,
                bytes=sum(tensor.numel() * tensor.itemsize for tensor in distinct.values()),
            )
        )
        return result


def _is_alias(func: Any, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> bool:
    """Return whether an operation only returns views of its arguments, or the arguments themselves."""
    if func._schema.is_mutable:
        return False
    storages = {tensor.untyped_storage()._cdata for tensor in inputs}
    return all(tensor.untyped_storage()._cdata in storages for tensor in outputs)


def _list_tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]
