"""What one training step of a network does, operation by operation: counted on shapes alone, without memory or time.

The network runs forward and backward on the meta device, where tensors have shapes but no values, so an image of
any size will do. Everything that torch dispatches there is written down: its FLOPs, the memory that it touches, the
halo that it needs when its image is cut, and what it sums over the whole image.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from tessera.errors import Refused, TesseraError, first_line
from tessera.geometry import Window
from tessera.models import lay_out

Plane = tuple[int, int]
aten = torch.ops.aten

CHANNELS = 3  # of the images that models take
LEAST_SUM_BYTES = 4  # statistics are summed in float32 at least

# Operations that change the size of the image and yet read nothing beyond their own pixels, or sum over all of it.
LOCAL = {aten.constant_pad_nd, aten.reflection_pad2d, aten.replication_pad2d}
SUMS = {aten.mean, aten.sum, aten._adaptive_avg_pool2d}


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Memory that an operation touches: cut with the image if it has a plane, else whole on every rank."""

    key: int
    bytes: int
    plane: Plane | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Halo:
    """The exchange before an operation; `adjoint` if its input needs a gradient, `hides` if it can go on meanwhile."""

    sizes: tuple[int, int, int]
    window: Window
    pixel_bytes: int
    adjoint: bool
    hides: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of the uncut network; `plane` is what its FLOPs are spread over, `summed` bytes over all ranks."""

    name: str
    flops: int
    plane: Plane | None
    pieces: tuple[Piece, ...]
    halo: Halo | None = None
    summed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A training step: its operations, what the forward pass keeps for the backward pass, and its weights."""

    plane: Plane
    operations: tuple[Operation, ...]
    saved: tuple[Piece, ...]
    weight_bytes: int
    gradient_bytes: int


def step_of(model: str, plane: Plane, *, batch: int = 1, dtype: str = "float32") -> Work:
    """The work of one step of a model of the registry, or of `module:callable`, on images of a size."""
    return trace(lay_out(model), plane, batch=batch, dtype=dtype)


def trace(module: nn.Module, plane: Plane, *, batch: int = 1, dtype: str = "float32") -> Work:
    """The work of one step of a network, which is taken to the meta device and cannot compute afterwards."""
    kind = getattr(torch, dtype)
    module = module.to(device="meta", dtype=kind).train()
    image = torch.empty((batch, CHANNELS, *plane), dtype=kind, device="meta")
    recorder = _Recorder([*module.parameters(), *module.buffers()], image)
    try:
        with recorder, torch.autograd.graph.saved_tensors_hooks(recorder.save, lambda tensor: tensor):
            output = module(image)
            if not isinstance(output, Tensor):
                raise Refused("a scaling is predicted for models that give one tensor", got=type(output).__name__)
            recorder.forward = False
            torch.autograd.backward(output, torch.empty(output.shape, dtype=output.dtype, device="meta"))
    except (RuntimeError, ValueError) as error:
        got = "x".join(map(str, plane))
        raise TesseraError(f"the model does not take this image: {first_line(error)}", got=got) from None
    state = [*module.parameters(), *module.buffers()]
    return Work(
        plane=plane,
        operations=tuple(recorder.operations),
        saved=tuple(recorder.saved.values()),
        weight_bytes=sum(tensor.nbytes for tensor in state),
        gradient_bytes=sum(p.nbytes for p in module.parameters() if p.requires_grad),
    )


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes down what is dispatched. It keeps every tensor, so that a storage's number stays its own."""

    def __init__(self, weights: Sequence[Tensor], image: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.forward = True
        self.operations: list[Operation] = []
        self.saved: dict[int, Piece] = {}
        self._image = _key(image)
        self._weights = {_key(tensor) for tensor in weights}
        self._kept: list[Tensor] = [*weights, image]

    def save(self, tensor: Tensor) -> Tensor:
        """Called by autograd for all that the backward pass will read."""
        if _key(tensor) not in self._weights:
            self._kept.append(tensor)
            self.saved.setdefault(_key(tensor), self._piece(tensor))
        return tensor

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        given, made = _tensors((args, kwargs)), _tensors(result)
        self._kept += made
        if func.is_view or not (given and made):
            return result
        packet = func._overloadpacket
        named = _named(func, args, kwargs or {})
        self._mark_weights(packet, named, given, made)
        distinct = {_key(tensor): tensor for tensor in (*given, *made)}
        counted = flop_registry.get(packet)
        self.operations.append(
            Operation(
                name=str(packet),
                flops=int(counted(*args, **(kwargs or {}), out_val=result)) if counted else 0,
                plane=self._plane_of((*made, *given) if packet is not aten.convolution_backward else given),
                pieces=tuple(map(self._piece, distinct.values())),
                halo=self._halo(packet, named, made) if self.forward else None,
                summed=_statistics(packet, named, made) + (_image_sums(packet, named, made) if self.forward else 0),
            )
        )
        return result

    def _mark_weights(
        self, packet: Any, named: dict[str, Any], given: Sequence[Tensor], made: Sequence[Tensor]
    ) -> None:
        """Gradients of weights are like weights, and so is whatever is made of nothing but weights."""
        images = [tensor for tensor in given if tensor.dim() == 4]
        grads: Sequence[Tensor] = []
        if packet is aten.convolution_backward:
            grads = made[1:] if named["output_mask"][0] else made
        elif images and all(_key(tensor) in self._weights for tensor in images):
            grads = made
        self._weights |= {_key(tensor) for tensor in grads}

    def _piece(self, tensor: Tensor) -> Piece:
        return Piece(key=_key(tensor), bytes=tensor.untyped_storage().nbytes(), plane=self._plane_of([tensor]))

    def _plane_of(self, tensors: Sequence[Tensor]) -> Plane | None:
        """Height and width of the first that is an image."""
        for tensor in tensors:
            if tensor.dim() == 4 and _key(tensor) not in self._weights:
                return int(tensor.shape[2]), int(tensor.shape[3])
        return None

    def _halo(self, packet: Any, named: dict[str, Any], made: Sequence[Tensor]) -> Halo | None:
        image = named.get("input", named.get("self"))
        if not isinstance(image, Tensor) or self._plane_of([image]) is None:
            return None
        read = WINDOWS.get(packet)
        if read is None:
            if self._plane_of(made) not in (None, self._plane_of([image])) and packet not in LOCAL | SUMS:
                raise Refused(f"the halo of {packet} cannot be predicted", do="predict a model without it")
            return None
        samples, channels, height, width = image.shape
        return Halo(
            sizes=(samples, height, width),
            window=read(named),
            pixel_bytes=channels * image.element_size(),
            adjoint=_key(image) != self._image,
            hides=packet is aten.convolution,
        )


def _convolution(named: dict[str, Any]) -> Window:
    return Window.of(
        tuple(named["weight"].shape[2:]),
        stride=named["stride"],
        dilation=named["dilation"],
        padding=named["padding"],
        transposed=named["transposed"],
        output_padding=named["output_padding"],
    )


def _pool(named: dict[str, Any]) -> Window:
    kernel = named["kernel_size"]
    return Window.of(
        _pair(kernel),
        stride=_pair(named["stride"] or kernel),
        padding=_pair(named["padding"]),
        dilation=_pair(named.get("dilation", 1)),
        ceil_mode=named["ceil_mode"],
    )


WINDOWS: dict[Any, Callable[[dict[str, Any]], Window]] = {
    aten.convolution: _convolution,
    aten.max_pool2d_with_indices: _pool,
    aten.avg_pool2d: _pool,
}


def _statistics(packet: Any, named: dict[str, Any], made: Sequence[Tensor]) -> int:
    """The bytes of a normalisation's statistics, which all ranks sum."""
    name, item = str(packet), max(LEAST_SUM_BYTES, made[0].element_size())
    if "batch_norm" in name:
        training = named.get("training", named.get("train", True))
        return 2 * int(named["input"].shape[1]) * item if training else 0
    return 2 * int(named["N"]) * int(named["group"]) * item if "group_norm" in name else 0


def _image_sums(packet: Any, named: dict[str, Any], made: Sequence[Tensor]) -> int:
    """The bytes of a sum or mean over the image: every rank has a part of it."""
    image = named.get("self")
    is_sum = packet in SUMS and isinstance(image, Tensor) and image.dim() == 4 and made[0].shape != image.shape
    return made[0].nbytes if is_sum else 0


def _named(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by name, those left out with their defaults."""
    arguments = func._schema.arguments
    found = {a.name: a.default_value for a in arguments if a.has_default_value()}
    found |= {a.name: value for a, value in zip(arguments, args, strict=False)}
    return found | kwargs


def _pair(value: int | Sequence[int]) -> tuple[int, ...]:
    values = [value] if isinstance(value, int) else list(value)
    return tuple(values * 2 if len(values) == 1 else values)


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _key(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
