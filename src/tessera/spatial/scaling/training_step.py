"""The operations of one training step of a network, counted on shapes alone.

The network runs forward and backward on the meta device, where tensors have shapes but no values, so images of any size
are possible. Every dispatched operation is recorded: its FLOPs, the memory that it accesses, the halo that it requires
if its image is split, and its sums over the whole image.
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

from tessera.errors import Refused, TesseraError, get_first_line
from tessera.geometry import Window
from tessera.models import build_layers

Plane = tuple[int, int]
aten = torch.ops.aten

CHANNELS = 3  # channels of input images
MIN_SUM_BYTES = 4  # bytes per value of statistics, which are summed in float32 or wider

# Operations that change the size of the image without a halo exchange, or that sum over the whole image.
LOCAL = {aten.constant_pad_nd, aten.reflection_pad2d, aten.replication_pad2d}
SUMS = {aten.mean, aten.sum, aten._adaptive_avg_pool2d}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPiece:
    """Memory that an operation accesses. With a `plane`, it is split like the image; else every rank has all of it."""

    key: int
    bytes: int
    plane: Plane | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationHalo:
    """The halo exchange before an operation.

    `adjoint`: the gradient of the input is exchanged in backward; `hides`: the exchange can overlap with the operation.
    """

    sizes: tuple[int, int, int]
    window: Window
    pixel_bytes: int
    adjoint: bool
    hides: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOperation:
    """One operation of the unsplit network.

    Its FLOPs are divided like the pixels of `plane`; `summed` is the bytes of its sums over all ranks.
    """

    name: str
    flops: int
    plane: Plane | None
    pieces: tuple[MemoryPiece, ...]
    halo: OperationHalo | None = None
    summed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStep:
    """A training step: its operations, the tensors saved for backward, and the bytes of weights and gradients."""

    plane: Plane
    operations: tuple[StepOperation, ...]
    saved: tuple[MemoryPiece, ...]
    weight_bytes: int
    gradient_bytes: int


def count_training_step(model: str, plane: Plane, *, batch: int = 1, dtype: str = "float32") -> TrainingStep:
    """Count the operations of one training step of a model (a registered name or `module:callable`).

    `plane` is (height, width) of the images in pixels.
    """
    return count_operations(build_layers(model), plane, batch=batch, dtype=dtype)


def count_operations(module: nn.Module, plane: Plane, *, batch: int = 1, dtype: str = "float32") -> TrainingStep:
    """Count the operations of one training step. The network is moved to the meta device: it cannot compute later."""
    kind = getattr(torch, dtype)
    module = module.to(device="meta", dtype=kind).train()
    image = torch.empty((batch, CHANNELS, *plane), dtype=kind, device="meta")
    recorder = _Recorder([*module.parameters(), *module.buffers()], image)
    try:
        with recorder, torch.autograd.graph.saved_tensors_hooks(recorder.save, lambda tensor: tensor):
            output = module(image)
            if not isinstance(output, Tensor):
                raise Refused(
                    "scaling can only be predicted for models that return one tensor", got=type(output).__name__
                )
            recorder.forward = False
            torch.autograd.backward(output, torch.empty(output.shape, dtype=output.dtype, device="meta"))
    except (RuntimeError, ValueError) as error:
        got = "x".join(map(str, plane))
        raise TesseraError(f"the model does not accept this image: {get_first_line(error)}", got=got) from None
    state = [*module.parameters(), *module.buffers()]
    return TrainingStep(
        plane=plane,
        operations=tuple(recorder.operations),
        saved=tuple(recorder.saved.values()),
        weight_bytes=sum(tensor.nbytes for tensor in state),
        gradient_bytes=sum(p.nbytes for p in module.parameters() if p.requires_grad),
    )


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that records all operations. It keeps all tensors alive, so that storage addresses are unique."""

    def __init__(self, weights: Sequence[Tensor], image: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.forward = True
        self.operations: list[StepOperation] = []
        self.saved: dict[int, MemoryPiece] = {}
        self._image = _get_key(image)
        self._weights = {_get_key(tensor) for tensor in weights}
        self._tensors: list[Tensor] = [*weights, image]

    def save(self, tensor: Tensor) -> Tensor:
        """Record a tensor that autograd saves for backward."""
        if _get_key(tensor) not in self._weights:
            self._tensors.append(tensor)
            self.saved.setdefault(_get_key(tensor), self._make_piece(tensor))
        return tensor

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        inputs, outputs = _list_tensors((args, kwargs)), _list_tensors(result)
        self._tensors += outputs
        if func.is_view or not (inputs and outputs):
            return result
        packet = func._overloadpacket
        named = _name_arguments(func, args, kwargs or {})
        self._mark_weights(packet, named, inputs, outputs)
        distinct = {_get_key(tensor): tensor for tensor in (*inputs, *outputs)}
        counted = flop_registry.get(packet)
        self.operations.append(
            StepOperation(
                name=str(packet),
                flops=int(counted(*args, **(kwargs or {}), out_val=result)) if counted else 0,
                plane=self._find_plane((*outputs, *inputs) if packet is not aten.convolution_backward else inputs),
                pieces=tuple(map(self._make_piece, distinct.values())),
                halo=self._find_halo(packet, named, outputs) if self.forward else None,
                summed=_count_statistics(packet, named, outputs)
                + (_count_image_sums(packet, named, outputs) if self.forward else 0),
            )
        )
        return result

    def _mark_weights(
        self, packet: Any, named: dict[str, Any], inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> None:
        """Mark gradients of weights, and tensors computed from weights alone, as weights."""
        images = [tensor for tensor in inputs if tensor.dim() == 4]
        grads: Sequence[Tensor] = []
        if packet is aten.convolution_backward:
            grads = outputs[1:] if named["output_mask"][0] else outputs
        elif images and all(_get_key(tensor) in self._weights for tensor in images):
            grads = outputs
        self._weights |= {_get_key(tensor) for tensor in grads}

    def _make_piece(self, tensor: Tensor) -> MemoryPiece:
        return MemoryPiece(
            key=_get_key(tensor), bytes=tensor.untyped_storage().nbytes(), plane=self._find_plane([tensor])
        )

    def _find_plane(self, tensors: Sequence[Tensor]) -> Plane | None:
        """Return (height, width) of the first tensor that is an image."""
        for tensor in tensors:
            if tensor.dim() == 4 and _get_key(tensor) not in self._weights:
                return int(tensor.shape[2]), int(tensor.shape[3])
        return None

    def _find_halo(self, packet: Any, named: dict[str, Any], outputs: Sequence[Tensor]) -> OperationHalo | None:
        image = named.get("input", named.get("self"))
        if not isinstance(image, Tensor) or self._find_plane([image]) is None:
            return None
        read = WINDOWS.get(packet)
        if read is None:
            if self._find_plane(outputs) not in (None, self._find_plane([image])) and packet not in LOCAL | SUMS:
                raise Refused(f"the halo of {packet} cannot be predicted", do="predict a model without it")
            return None
        samples, channels, height, width = image.shape
        return OperationHalo(
            sizes=(samples, height, width),
            window=read(named),
            pixel_bytes=channels * image.element_size(),
            adjoint=_get_key(image) != self._image,
            hides=packet is aten.convolution,
        )


def _get_convolution_window(named: dict[str, Any]) -> Window:
    return Window.of(
        tuple(named["weight"].shape[2:]),
        stride=named["stride"],
        dilation=named["dilation"],
        padding=named["padding"],
        transposed=named["transposed"],
        output_padding=named["output_padding"],
    )


def _get_pool_window(named: dict[str, Any]) -> Window:
    kernel = named["kernel_size"]
    return Window.of(
        _to_pair(kernel),
        stride=_to_pair(named["stride"] or kernel),
        padding=_to_pair(named["padding"]),
        dilation=_to_pair(named.get("dilation", 1)),
        ceil_mode=named["ceil_mode"],
    )


WINDOWS: dict[Any, Callable[[dict[str, Any]], Window]] = {
    aten.convolution: _get_convolution_window,
    aten.max_pool2d_with_indices: _get_pool_window,
    aten.avg_pool2d: _get_pool_window,
}


def _count_statistics(packet: Any, named: dict[str, Any], outputs: Sequence[Tensor]) -> int:
    """Return the bytes of a normalisation's statistics, which all ranks sum."""
    name, item = str(packet), max(MIN_SUM_BYTES, outputs[0].element_size())
    if "batch_norm" in name:
        training = named.get("training", named.get("train", True))
        return 2 * int(named["input"].shape[1]) * item if training else 0
    return 2 * int(named["N"]) * int(named["group"]) * item if "group_norm" in name else 0


def _count_image_sums(packet: Any, named: dict[str, Any], outputs: Sequence[Tensor]) -> int:
    """Return the bytes of a sum or mean over the image, to which every rank contributes a part."""
    image = named.get("self")
    is_sum = packet in SUMS and isinstance(image, Tensor) and image.dim() == 4 and outputs[0].shape != image.shape
    return outputs[0].nbytes if is_sum else 0


def _name_arguments(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of an operation by name, including the defaults of omitted arguments."""
    arguments = func._schema.arguments
    values = {a.name: a.default_value for a in arguments if a.has_default_value()}
    values |= {a.name: value for a, value in zip(arguments, args, strict=False)}
    return values | kwargs


def _to_pair(value: int | Sequence[int]) -> tuple[int, ...]:
    values = [value] if isinstance(value, int) else list(value)
    return tuple(values * 2 if len(values) == 1 else values)


def _list_tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _get_key(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
