"""`parallelize`: an ordinary torch network on images that are split over ranks.

The network runs its own Python code, unmodified, on split tensors (`tessera.spatial.tensor`). This module broadcasts
the weights, synchronises random number generators, splits input images, gathers outputs, and makes weight gradients
ordinary tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from math import prod
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh
from torch.utils._pytree import tree_leaves, tree_map_only

from tessera.errors import TesseraError, suggest_similar
from tessera.geometry import Box, Interval, Mesh
from tessera.spatial.agreement import check_call_and_sync_rng, check_same, compute_checksum, iter_modules
from tessera.spatial.tensor.boundary import change_layout, join_parts, split_whole
from tessera.spatial.tensor.eager_mode import ignore_compilation, run_eagerly, warn_of_compiled_modules
from tessera.spatial.tensor.explanation import Explanation
from tessera.spatial.tensor.gradient_buckets import get_bucket
from tessera.spatial.tensor.layout import make_plain_layout, split_dims_evenly
from tessera.spatial.tensor.split_tensor import MAX_GATHER_BYTES, Overlap, SplitGroup, SplitTensor, get_version
from tessera.spatial.tensor.weights import broadcast_weights, describe_weights
from tessera.spatial.unused_groups import register_group
from tessera.spatial.weight_hooks import hook_weights, is_reduced_by_torch
from tessera.transport.all_reduce import HalfPrecisionSum
from tessera.transport.device_staging import stage_for_device
from tessera.transport.process_groups import get_group_of_ranks, get_world_transport
from tessera.transport.transport import Transport

IMAGE_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)  # ranks send the index of a dtype
MAX_DIMS = 6  # maximum number of dims of an image that rank `root` scatters


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
    max_gather_bytes: int = MAX_GATHER_BYTES,
    broadcast: bool = True,
    halo_depth: int | Literal["auto"] = 1,
    overlap: Overlap = "none",
) -> ParallelModel:
    """Split the activations of a network over the ranks of a mesh. All ranks must make the same calls.

    `mesh` is the number of parts of each split dim of the image: "2x2" splits height and width, "2" the width,
    "2x1x2" depth and width of a volume. A `DeviceMesh` gives the number of parts and the ranks. Without a `transport`,
    torch.distributed carries the data; it must be initialised. `process_group` is the group of ranks that share an
    image (default: all ranks). All ranks of the group get the weights of its first rank, unless `broadcast` is False.

    Output, gradients and running statistics equal the unsplit model's, up to rounding. Operations that cannot be
    computed on tiles are computed from whole tensors; `explain` lists them, and `strict` refuses them.

    `image_size` is checked against the mesh if given; images of any size can be passed later. `gather_at` names a
    module (such as "layer4") from which on each rank computes whole images of the batch instead of tiles.
    `fp16_allreduce` sends weight gradients as float16: half the bytes of float32, but only three significant digits.
    Keys and values of attention over pixels are gathered up to `max_gather_bytes` (default: 64 MiB); larger keys
    and values use ring attention, which needs less memory.

    `halo_depth` is the number of consecutive convolutions per halo exchange. With n, a rank fetches the halo of n
    convolutions and recomputes the border pixels in between: fewer messages, more computation. "auto" chooses
    a number for every exchange from measured times, so rounding may differ between runs.

    `overlap` is what a convolution computes while its halo is under way: nothing ("none"), the outputs that need no
    halo ("split"), or all outputs, of which the borders are then computed again ("recompute"). Backward, the gradients
    of the borders always travel while the gradient of the weight is computed.
    """
    if halo_depth != "auto" and (not isinstance(halo_depth, int) or halo_depth < 1):
        raise TesseraError("invalid halo_depth", got=halo_depth, allowed="auto, or 1 or more")
    if overlap not in get_args(Overlap):
        raise TesseraError("invalid overlap", got=overlap, allowed=get_args(Overlap))
    if overlap != "none" and halo_depth != 1:
        raise TesseraError("overlap requires halo_depth=1", got=f"overlap={overlap!r}, halo_depth={halo_depth!r}")
    if isinstance(mesh, DeviceMesh):
        counts = tuple(mesh.mesh.shape)
        process_group = mesh.get_group() if mesh.ndim == 1 else get_group_of_ranks(mesh.mesh.flatten().tolist())
    else:
        counts = read_mesh(mesh)
    transport = stage_for_device(
        transport or get_world_transport(prod(counts), process_group), find_device(model, transport)
    )
    group = SplitGroup(
        transport, counts, strict=strict, halo_depth=halo_depth, max_gather_bytes=max_gather_bytes, overlap=overlap
    )
    register_group(group)
    if isinstance(mesh, DeviceMesh):
        group.device_mesh = mesh
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


def find_device(model: nn.Module, transport: Transport | None = None) -> torch.device:
    """Return the device of a model's weights; without weights, the device of the transport's memory."""
    tensors = (tensor for tensor in (*model.parameters(), *model.buffers()) if tensor.device.type != "meta")
    devices = dict.fromkeys(tensor.device for tensor in tensors)
    if len(devices) > 1:
        raise TesseraError(
            "the weights of the model are on several devices",
            got=", ".join(map(str, devices)),
            do="move the model to the device of this rank",
        )
    kind = "cpu" if transport is None else transport.traits.device_type
    if not devices and kind != "cpu":
        return torch.device(kind, torch.accelerator.current_device_index())
    return next(iter(devices), torch.device("cpu"))


def check_image_size(size: Sequence[int], counts: Sequence[int]) -> None:
    """Refuse an image with fewer pixels than parts along a dim."""
    parts = counts if len(size) >= len(counts) else (prod(counts),)
    if any(length < count for length, count in zip(size[-len(parts) :], parts, strict=True)):
        raise TesseraError(
            "the mesh has more parts than the image has pixels along a dim",
            got=f"{'x'.join(map(str, size))} pixels over {'x'.join(map(str, counts))} ranks",
            do="use fewer parts along that dim",
        )


class ParallelModel(nn.Module):
    """A network whose activations are split over ranks; built by `parallelize`.

    `parallel(image)` takes the whole image, the same on every rank, or a split tensor from `scatter`. It returns split
    tensors: they behave like the whole output, so a loss can be computed and differentiated as usual.
    `parallel.gather(output)` returns plain tensors on every rank.

    It has the parameters, buffers, submodules and state dict of the unsplit model, under the same names.
    """

    model: nn.Module
    _group: SplitGroup | None

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
        self._about: dict[str, Any] = {
            name: getattr(group, name) for name in ("mesh", "strict", "halo_depth", "max_gather_bytes", "overlap")
        }
        self._calls, self._defers_sums = 0, True
        names = [name for name, _ in model.named_modules() if name]
        if gather_at is not None and gather_at not in names:
            raise TesseraError(
                "gather_at is not a module of the model", got=gather_at, do=suggest_similar(gather_at, names)
            )
        check_same("the models", describe_weights(model), group)
        if broadcast and group.ranks > 1:
            broadcast_weights(model, group.transport)
        if fp16_allreduce:
            group.add_weights = HalfPrecisionSum(group.transport)
        hook_weights(model)  # before the user's hooks, which then get plain gradients
        warn_of_compiled_modules(model)

    def _adopt(self, model: nn.Module) -> None:
        """Share the parameters, buffers and submodules of a model, so that names have no prefix."""
        object.__setattr__(self, "model", model)
        for name in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
            object.__setattr__(self, name, getattr(model, name))
        self.training = model.training

    @property
    def group(self) -> SplitGroup:
        """The ranks that share the activations. A network that was loaded from a file uses all ranks."""
        if self._group is None:
            transport = get_world_transport(prod(self._about["mesh"]))
            group = SplitGroup(stage_for_device(transport, find_device(self.model)), **self._about)
            if self._options["fp16_allreduce"]:
                group.add_weights = HalfPrecisionSum(group.transport)
            object.__setattr__(self, "_group", group)
            return group
        return self._group

    @run_eagerly
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the network. If no argument is a split tensor, the first tensor with three or more dims is split."""
        leaves = tree_leaves((args, kwargs))
        hook_weights(self.model, leaves)
        if torch.is_inference_mode_enabled() and not _has_inference_tensor(self.model, leaves):
            with torch.inference_mode(False), torch.no_grad():  # torch then calls fewer operators, and as in training
                return self.forward(*args, **kwargs)
        image = None
        if not any(isinstance(leaf, SplitTensor) for leaf in leaves):
            image = next((leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.dim() > 2), None)
        check_call_and_sync_rng(self.model, image, (args, kwargs), self._calls, self.group)
        self._calls += 1
        if image is not None:
            tiles = self._split(image)
            args, kwargs = tree_map_only(Tensor, lambda leaf: tiles if leaf is image else leaf, (args, kwargs))
        else:
            split = next((leaf for leaf in leaves if isinstance(leaf, SplitTensor)), None)
            if split is None:
                raise TesseraError("no image among the arguments", do="pass a tensor with samples, channels and pixels")
            self.group.select_plans(split.shape)
        self.group.start_pass()
        get_bucket(self.group).clear()
        self._defers_sums &= not is_reduced_by_torch()
        self.group.defers_sums = self._defers_sums
        with self._gather_samples(), ignore_compilation():
            return self.model(*args, **kwargs)

    @run_eagerly
    def scatter(self, image: Tensor | None, root: int | None = None) -> Tensor:
        """Return an image as a split tensor. With `root`, only rank `root` passes the image; other ranks pass None."""
        group = self.group
        if root is not None:
            return self._scatter_from(root, image)
        if image is None:
            raise TesseraError("no image to scatter", do="pass root=… if only one rank has it")
        if isinstance(image, SplitTensor):
            return image
        check_same("the images", compute_checksum(image), group)
        return self._split(image)

    def _split(self, image: Tensor) -> Tensor:
        """Return an image that is equal on all ranks as a split tensor."""
        group = self.group
        check_image_size(image.shape[2:], group.mesh)
        group.select_plans(image.shape)
        return split_whole(self._to_format(image), group.get_tiles(image.shape, image.dim() - 2), group)

    @run_eagerly
    def gather(self, output: Any) -> Any:
        """Return an output with plain whole tensors in place of split tensors, differentiably."""
        return _map_tensors(output, join_parts)

    def close(self) -> None:
        """Release buffers and connections; all ranks call this together. A later call of the network opens new ones."""
        if self._group is not None:
            self._group.close()

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
        group.select_plans(shape)
        nothing = Box(tuple(Interval(0, 0) for _ in shape))
        source = make_plain_layout(
            shape, [Box.from_sizes(shape) if rank == root else nothing for rank in range(group.ranks)]
        )
        if group.rank != root or image is None:
            device = find_device(self.model, group.transport)
            image = torch.empty([0] * dims, dtype=IMAGE_DTYPES[dtype], device=device, requires_grad=bool(needs_grad))
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

        copies: list[SplitTensor] = []

        def divide(module: nn.Module, args: Any, kwargs: Any) -> Any:
            def split(tensor: SplitTensor) -> Tensor:
                result = _split_samples(tensor)
                if isinstance(result, SplitTensor) and result is not tensor:
                    copies.append(result)
                return result

            return tree_map_only(SplitTensor, split, (args, kwargs))

        def check(module: nn.Module, args: Any, output: Any) -> None:
            if any(get_version(tensor) for tensor in copies):  # the caller's tensor would keep its old values
                do = "use inplace=False, or name another module"
                raise TesseraError("the module gather_at writes its input in place", got=name, do=do)
            copies.clear()

        module = self.model.get_submodule(str(name))
        handles = [module.register_forward_pre_hook(divide, with_kwargs=True), module.register_forward_hook(check)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

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
        return {"model": self.model, "group": self._about, "options": self._options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        nn.Module.__init__(self)
        self._adopt(state["model"])
        object.__setattr__(self, "_group", None)
        self._about, self._options = state["group"], state["options"]
        self._calls, self._defers_sums = 0, True

    def __deepcopy__(self, memo: dict[int, Any]) -> ParallelModel:
        copy = ParallelModel.__new__(ParallelModel)
        copy.__setstate__(self.__getstate__() | {"model": deepcopy(self.model, memo), "options": dict(self._options)})
        object.__setattr__(copy, "_group", self._group)
        return copy


def _has_inference_tensor(model: nn.Module, values: Sequence[Any]) -> bool:
    """Return whether a weight, a buffer or an argument is an inference tensor, which only inference mode can write."""
    owned = (
        tensor for module in iter_modules(model) for tensor in (*module._parameters.values(), *module._buffers.values())
    )
    return any(isinstance(tensor, Tensor) and tensor.is_inference() for tensor in (*owned, *values))


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
    """Return the properties of an image that other ranks need: presence, dtype, `requires_grad` and shape."""
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
