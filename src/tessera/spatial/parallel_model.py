"""`parallelize`: an ordinary torch network on images that are split over ranks.

The network runs its own Python code, unmodified, on split tensors (`tessera.spatial.tensor`). This module broadcasts
the weights, synchronises random number generators, splits input images, gathers outputs, and makes weight gradients
ordinary tensors.
"""

from __future__ import annotations

import random
import weakref
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh
from torch.utils._pytree import tree_leaves, tree_map_only

from tessera.errors import TesseraError, suggest_similar
from tessera.geometry import Box, Interval, Mesh
from tessera.spatial.tensor.boundary import change_layout, join_parts, split_whole
from tessera.spatial.tensor.explanation import Explanation
from tessera.spatial.tensor.layout import make_plain_layout, split_dims_evenly
from tessera.spatial.tensor.split_tensor import SplitGroup, SplitTensor
from tessera.spatial.tensor.weights import broadcast_weights, describe_weights
from tessera.transport.all_reduce import HalfPrecisionSum
from tessera.transport.process_groups import get_world_transport
from tessera.transport.transport import Transport

IMAGE_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)  # ranks send the index of a dtype
MAX_DIMS = 6  # dims of an image that rank `root` can announce to the others


def parallelize(
    model: nn.Module,
    mesh: Mesh | DeviceMesh | Sequence[int] | str,
    *,
    process_group: ProcessGroup | None = None,
    image_size: int | Sequence[int] | None = None,
    transport: Transport | None = None,
    channels_last: bool = False,
    gather_at: str | None = None,
    fp16_allreduce: bool = False,
    strict: bool = False,
    broadcast: bool = True,
) -> ParallelModel:
    """Split the activations of a network over the ranks of a mesh. All ranks call this, and make the same calls later.

    `mesh` is the number of parts of each split dim of the image: "2x2" splits height and width, "2" the width,
    "2x1x2" depth and width of a volume. A `DeviceMesh` gives the number of parts and the ranks. Without a `transport`,
    torch.distributed carries the data; it must be initialised. `process_group` is the group of ranks that share an
    image (default: all ranks). All ranks of the group get the weights of its first rank, unless `broadcast` is False.

    Output, gradients and running statistics equal the unsplit model's, up to rounding. Operations that cannot be
    computed on tiles are computed from whole tensors; `explain` lists them, and `strict` refuses them.

    `image_size` is checked against the mesh if given; images of any size can be passed later. `gather_at` names a
    module (such as "layer4") from which on each rank computes whole images of the batch instead of tiles.
    `fp16_allreduce` sends weight gradients as float16: half the bytes of float32, but only three significant digits.
    """
    if isinstance(mesh, DeviceMesh):
        counts = tuple(mesh.mesh.shape)
        process_group = mesh.get_group() if mesh.ndim == 1 else mesh._flatten().get_group()
    else:
        counts = read_mesh(mesh)
    transport = transport or get_world_transport(prod(counts), process_group)
    group = SplitGroup(transport, counts, strict=strict)
    if image_size is not None:
        size = (image_size,) * max(2, len(counts)) if isinstance(image_size, int) else tuple(image_size)
        check_image_size(size, counts)
    return ParallelModel(
        model,
        group,
        channels_last=channels_last,
        gather_at=gather_at,
        fp16_allreduce=fp16_allreduce,
        broadcast=broadcast,
    )


def read_mesh(mesh: Mesh | Sequence[int] | str) -> tuple[int, ...]:
    """Return the number of parts of each split dim.

    >>> read_mesh("2x1x2"), read_mesh("4"), read_mesh(Mesh(2, 3))
    ((2, 1, 2), (4,), (2, 3))
    """
    if isinstance(mesh, Mesh):
        return mesh.rows, mesh.cols
    try:
        counts = tuple(int(part) for part in mesh.lower().split("x")) if isinstance(mesh, str) else tuple(mesh)
    except ValueError:
        counts = ()
    if not counts or min(counts) < 1:
        raise TesseraError("not a mesh", got=mesh, allowed="parts per dim, for example 2, 2x2 or 2x1x2")
    return counts


def check_image_size(size: Sequence[int], counts: Sequence[int]) -> None:
    """Refuse an image with fewer pixels than parts along a dim."""
    parts = counts if len(size) >= len(counts) else (prod(counts),)
    if any(length < count for length, count in zip(size[-len(parts) :], parts, strict=True)):
        raise TesseraError(
            "more parts than pixels",
            got=f"{'x'.join(map(str, size))} pixels over {'x'.join(map(str, counts))} ranks",
            do="use fewer ranks",
        )


class ParallelModel(nn.Module):
    """A network whose activations are split over ranks; built by `parallelize`.

    `parallel(image)` takes the whole image, the same on every rank, or a split tensor from `scatter`. It returns split
    tensors: they behave like the whole output, so a loss can be computed and differentiated as usual.
    `parallel.gather(output)` returns plain tensors on every rank.

    Parameters, buffers, submodules and state dicts are those of the unsplit model, under the same names.
    """

    model: nn.Module
    _group: SplitGroup

    def __init__(
        self,
        model: nn.Module,
        group: SplitGroup,
        *,
        channels_last: bool = False,
        gather_at: str | None = None,
        fp16_allreduce: bool = False,
        broadcast: bool = True,
    ) -> None:
        super().__init__()
        self._adopt(model)
        object.__setattr__(self, "_group", group)
        self._options = {"channels_last": channels_last, "gather_at": gather_at, "fp16_allreduce": fp16_allreduce}
        self._hooked: dict[int, Any] = {}
        names = [name for name, _ in model.named_modules() if name]
        if gather_at is not None and gather_at not in names:
            raise TesseraError(
                "gather_at is not a module of the model", got=gather_at, do=suggest_similar(gather_at, names)
            )
        _check_same("the models of the ranks differ", describe_weights(model), group)
        if broadcast:
            broadcast_weights(model, group.transport)
        if fp16_allreduce:
            group.add_weights = HalfPrecisionSum(group.transport)
        self._hook_gradients()  # before the user's hooks, which then get plain gradients

    def _adopt(self, model: nn.Module) -> None:
        """Share the parameters, buffers and submodules of a model, so that names have no prefix."""
        object.__setattr__(self, "model", model)
        for name in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
            object.__setattr__(self, name, getattr(model, name))
        self.training = model.training

    @property
    def group(self) -> SplitGroup:
        """The ranks that share the activations."""
        return self._group

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the network. If no argument is a split tensor, the first tensor with three or more dims is split."""
        self._hook_gradients()
        leaves = tree_leaves((args, kwargs))
        if not any(isinstance(leaf, SplitTensor) for leaf in leaves):
            images = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.dim() > 2]
            if not images:
                raise TesseraError("no image among the arguments", do="pass a tensor with samples, channels and pixels")
            parts = {id(images[0]): self.scatter(images[0])}
            args, kwargs = tree_map_only(Tensor, lambda leaf: parts.get(id(leaf), leaf), (args, kwargs))
        self._agree_on_random_numbers()
        with self._gather_samples():
            return self.model(*args, **kwargs)

    def scatter(self, image: Tensor | None, root: int | None = None) -> Tensor:
        """Return an image as a split tensor. With `root`, only rank `root` passes the image; the others pass None."""
        group = self.group
        if root is not None:
            return self._scatter_from(root, image)
        if image is None:
            raise TesseraError("no image to scatter", do="pass root=… if only one rank has it")
        if isinstance(image, SplitTensor):
            return image
        check_image_size(image.shape[2:], group.mesh)
        _check_same("the images of the ranks differ", _compute_checksum(image), group)
        return split_whole(self._to_format(image), group.get_tiles(image.shape, image.dim() - 2), group)

    def gather(self, output: Any) -> Any:
        """Return an output with plain whole tensors in place of split tensors, differentiably."""
        return _map_tensors(output, join_parts)

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """Run the network once and return how each operation was computed, and the bytes that it moved."""
        log = self.group.log
        with torch.no_grad(), log.record(self.model):
            self(*args, **kwargs)
        return Explanation(log.take(), self.group.mesh)

    def _to_format(self, image: Tensor) -> Tensor:
        if self._options["channels_last"] and image.dim() == 4:
            return image.contiguous(memory_format=torch.channels_last)
        return image

    def _scatter_from(self, root: int, image: Tensor | None) -> Tensor:
        group = self.group
        if not 0 <= root < group.ranks:
            raise TesseraError("root is not a rank", got=root, allowed=f"0 to {group.ranks - 1}")
        about = torch.zeros(4 + MAX_DIMS, dtype=torch.int64)
        error: TesseraError | None = None
        if group.rank == root:
            try:
                about = _describe_image(image, root, group.mesh)
            except TesseraError as caught:  # raised later: the other ranks wait and must get the error first
                error = caught
        group.transport.all_reduce(about)
        is_there, dtype, needs_grad, dims, *sizes = about.tolist()
        if not is_there:
            raise error or TesseraError(f"rank {root} has no image that can be scattered", do="see its own error")
        shape = tuple(sizes[:dims])
        nothing = Box(tuple(Interval(0, 0) for _ in shape))
        source = make_plain_layout(
            shape, [Box.from_sizes(shape) if rank == root else nothing for rank in range(group.ranks)]
        )
        if group.rank != root or image is None:
            image = torch.empty([0] * dims, dtype=IMAGE_DTYPES[dtype], requires_grad=bool(needs_grad))
        return change_layout(
            split_whole(self._to_format(image), source, group, is_part=True), group.get_tiles(shape, dims - 2)
        )

    @contextmanager
    def _gather_samples(self) -> Iterator[None]:
        """While the network runs, give the module `gather_at` whole images, divided over the ranks."""
        name = self._options["gather_at"]
        if name is None:
            yield
            return

        def divide(module: nn.Module, args: Any, kwargs: Any) -> Any:
            return tree_map_only(SplitTensor, _split_samples, (args, kwargs))

        handle = self.model.get_submodule(str(name)).register_forward_pre_hook(divide, with_kwargs=True)
        try:
            yield
        finally:
            handle.remove()

    def _hook_gradients(self) -> None:
        """Make the gradients of weights plain tensors: an operation between a weight and a tile gives a split one."""
        if not torch.is_grad_enabled():
            return
        for weight in _list_parameters(self.model):
            known = self._hooked.get(id(weight))
            if weight.requires_grad and (known is None or known() is not weight):
                weight.register_hook(join_parts)  # type: ignore[no-untyped-call]
                self._hooked[id(weight)] = weakref.ref(weight)

    def _agree_on_random_numbers(self) -> None:
        """Give all ranks the random state of rank 0, if theirs differ: all ranks must draw the same numbers."""
        group = self.group
        if group.ranks == 1 or not _differs(_hash_random_state(), group):
            return
        state = [torch.get_rng_state().long(), torch.tensor(_read_python_state(), dtype=torch.int64)]
        for values in state:
            if group.rank:
                values.zero_()
            group.transport.all_reduce(values)
        torch.set_rng_state(state[0].to(torch.uint8))
        _write_python_state(state[1].tolist())

    def train(self, mode: bool = True) -> ParallelModel:
        super().train(mode)
        self.model.training = mode
        return self

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.model.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.model.load_state_dict(*args, **kwargs)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self.model._load_from_state_dict(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and pickles: the model and the options; the ranks are found again on use."""
        return {"model": self.model, "mesh": self.group.mesh, "strict": self.group.strict, "options": self._options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        nn.Module.__init__(self)
        self._adopt(state["model"])
        group = SplitGroup(get_world_transport(prod(state["mesh"])), state["mesh"], strict=state["strict"])
        object.__setattr__(self, "_group", group)
        self._options, self._hooked = state["options"], {}
        if self._options["fp16_allreduce"]:
            group.add_weights = HalfPrecisionSum(group.transport)

    def __deepcopy__(self, memo: dict[int, Any]) -> ParallelModel:
        from copy import deepcopy

        copy = ParallelModel.__new__(ParallelModel)
        nn.Module.__init__(copy)
        copy._adopt(deepcopy(self.model, memo))
        object.__setattr__(copy, "_group", self.group)
        copy._options, copy._hooked = dict(self._options), {}
        return copy


def _list_parameters(model: nn.Module) -> Iterator[nn.Parameter]:
    """Yield all parameters of a model, some perhaps twice; `Module.parameters` takes ten times as long."""
    modules = [model]
    while modules:
        module = modules.pop()
        yield from (weight for weight in module._parameters.values() if weight is not None)
        modules += [child for child in module._modules.values() if child is not None]


def _split_samples(tensor: SplitTensor) -> Tensor:
    layout = split_dims_evenly(tensor.shape, (0,), (tensor.group.ranks,))
    return change_layout(tensor, layout)


def _map_tensors(output: Any, function: Any) -> Any:
    """Apply a function to the split tensors of an output, also inside of dataclass-like outputs of libraries."""
    if isinstance(output, SplitTensor):
        return function(output)
    if hasattr(output, "__dataclass_fields__") and not isinstance(output, type):
        changed = {name: _map_tensors(getattr(output, name), function) for name in output.__dataclass_fields__}
        return type(output)(**changed)
    return tree_map_only(SplitTensor, function, output)


def _describe_image(image: Tensor | None, root: int, mesh: Sequence[int]) -> Tensor:
    """Return what the other ranks need to know of an image: presence, dtype, `requires_grad` and shape."""
    if image is None:
        raise TesseraError(f"root rank {root} passed no image")
    if image.dtype not in IMAGE_DTYPES:
        raise TesseraError("an image must have a floating point dtype", got=image.dtype, allowed=IMAGE_DTYPES)
    if not 3 <= image.dim() <= MAX_DIMS:
        raise TesseraError("not an image", got=f"{image.dim()} dims", allowed=f"3 to {MAX_DIMS}")
    check_image_size(image.shape[2:], mesh)
    sizes = [*image.shape, *(0,) * (MAX_DIMS - image.dim())]
    return torch.tensor(
        [1, IMAGE_DTYPES.index(image.dtype), image.requires_grad, image.dim(), *sizes], dtype=torch.int64
    )


def _compute_checksum(image: Tensor) -> int:
    """Return a number that differs for different images with near certainty."""
    plain = image.detach()
    words = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    sums: list[int] = []
    if not plain.is_complex():
        values = plain.contiguous().view(words[plain.itemsize]).view(-1)
        sums = [int(values.sum()), int(values[::7].sum())]
    return zlib.crc32(repr((tuple(image.shape), str(image.dtype), sums)).encode())


def _differs(value: int, group: SplitGroup) -> bool:
    """Return whether a number differs between the ranks."""
    values = torch.zeros(group.ranks, dtype=torch.int64)
    values[group.rank] = value
    group.transport.all_reduce(values)
    return len(set(values.tolist())) > 1


def _check_same(what: str, value: int, group: SplitGroup) -> None:
    if group.ranks > 1 and _differs(value, group):
        raise TesseraError(what, do="pass the same on every rank, or use `scatter(image, root=…)`")


def _hash_random_state() -> int:
    """Return a checksum of the random states of torch, Python and NumPy."""
    _, words, _ = random.getstate()
    _, keys, position, *_ = np.random.get_state(legacy=True)
    parts = (torch.get_rng_state().numpy(), np.array(words, dtype=np.uint32), np.asarray(keys), np.array([position]))
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part.tobytes(), checksum)
    return checksum


def _read_python_state() -> list[int]:
    """Return the random state of Python and NumPy as integers."""
    _, words, _ = random.getstate()
    _, keys, position, *_ = np.random.get_state(legacy=True)
    return [*words, *(int(key) for key in keys), int(position)]


def _write_python_state(state: Sequence[int]) -> None:
    version, words, extra = random.getstate()
    count = len(words)
    random.setstate((version, tuple(state[:count]), extra))
    np.random.set_state(("MT19937", np.array(state[count:-1], dtype=np.uint32), state[-1], 0, 0.0))
