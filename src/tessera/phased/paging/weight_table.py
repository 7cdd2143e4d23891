"""Weights of a module that are loaded on access.

A module finds its weights in two dicts, `_parameters` and `_buffers`. A `WeightTable` replaces such a dict: reading a
weight by name (`self.weight`) loads its phase. Reading all weights at once (`parameters()`, `state_dict()`) gives
`LazyParameter`s and `LazyBuffer`s, which have shape, dtype and device, and are loaded by the first operation on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from tessera.errors import TesseraError
from tessera.models.structure import map_structure

# Attributes and methods that are answered without loading the weight.
_METADATA_NAMES = (
    "shape dtype device ndim requires_grad is_meta layout grad grad_fn is_leaf is_cuda is_sparse is_quantized is_nested"
    " itemsize nbytes names is_cpu is_mkldnn is_mps is_xpu is_vulkan is_ipu is_maia is_mtia output_nr retains_grad"
)
_METADATA_METHODS = (
    Tensor.size,
    Tensor.dim,
    Tensor.numel,
    Tensor.nelement,
    Tensor.ndimension,
    Tensor.element_size,
    Tensor.is_floating_point,
    Tensor.is_complex,
    Tensor.__len__,
    Tensor.__hash__,
    Tensor.get_device,
    torch.is_floating_point,
    torch.is_complex,
    torch.numel,
)
_UNCHANGED = (Tensor.detach, Tensor.requires_grad_, Tensor.data.__get__, Tensor.cpu)  # type: ignore[attr-defined]
METADATA = {getattr(Tensor, name).__get__ for name in _METADATA_NAMES.split() if hasattr(Tensor, name)} | set(
    _METADATA_METHODS
)

# Metadata of the weight that differ from those of its lazy tensor, which has no memory.
_ANSWERS: dict[Any, Any] = {
    Tensor.device.__get__: torch.device("cpu"),
    Tensor.is_meta.__get__: False,  # type: ignore[attr-defined]
    Tensor.is_cpu.__get__: True,  # type: ignore[attr-defined]
    Tensor.get_device: -1,
    torch.get_device: -1,
}


class SlotOwner(Protocol):
    """The protocol of an object that loads weights."""

    @property
    def current(self) -> object:
        """The phase whose weights can be read without calling `fetch`."""

    def fetch(self, slot: WeightSlot) -> Tensor:
        """Load the phase of a weight, and return the weight."""


class StreamedModule(nn.Module):
    """Base class of modules that load their own weights; inside a larger network, such a module is not changed."""


class WeightSlot:
    """One weight: its description, and its tensor while it is in memory.

    `phase` is the phase of the weight. `version` is the version counter of the tensor when it was loaded: a higher
    counter means that the network has modified the weight.
    """

    __slots__ = (
        "attributes",
        "checked",
        "checksum",
        "dtype",
        "is_parameter",
        "lazy",
        "module",
        "name",
        "names",
        "owner",
        "phase",
        "shape",
        "strides",
        "tensor",
        "unit",
        "version",
    )

    def __init__(self, names: tuple[str, ...], value: Tensor) -> None:
        self.name, self.names, self.unit = names[0], names, 0
        self.shape, self.dtype = tuple(value.shape), value.dtype
        self.strides = None if value.is_contiguous() else value.stride()
        self.is_parameter = isinstance(value, nn.Parameter)
        self.attributes = dict(value.__dict__)
        self.tensor: Tensor | None = None
        self.phase: object = None
        self.owner: SlotOwner | None = None
        self.version = 0
        self.module: nn.Module | None = None
        self.checksum: int | None = None  # of the stored values, until they are compared once
        self.checked = False
        self.lazy = build_lazy_tensor(self)  # one for all names of the weight

    @property
    def nbytes(self) -> int:
        return self.dtype.itemsize * torch.Size(self.shape).numel()

    def fetch(self) -> Tensor:
        """Return the weight, and load its phase if necessary."""
        tensor = self.tensor
        if self.owner is None:
            if tensor is None:
                raise TesseraError("this model is closed", do="create a new PhasedModel")
            return tensor
        if tensor is None or self.phase is not self.owner.current:
            return self.owner.fetch(self)
        return tensor

    def set_tensor(self, value: Tensor) -> None:
        """Set the tensor of a loaded weight; the tensor shares the memory of `value`."""
        value = value.data  # with a version counter of its own: all weights of a region would share one
        if self.is_parameter:
            value = torch.Tensor._make_subclass(nn.Parameter, value, False)
        if self.attributes:
            value.__dict__.update(self.attributes)
        self.tensor, self.version = value, value._version

    @property
    def is_written(self) -> bool:
        """Whether the network wrote into the weight since it was loaded.

        Norms in training mode write without a new version; so do writes through `.data`, which are noticed once.
        """
        if self.tensor is None:
            return False
        if self.tensor._version != self.version:
            return True
        return not self.is_parameter and self.module is not None and self.module.training

    def compare_checksum(self) -> bool:
        """Return whether the values changed since the weight was loaded first; later calls return False."""
        if self.checksum is None or self.tensor is None:
            return False
        before, self.checksum, self.checked = self.checksum, None, True
        return compute_checksum(self.tensor) != before


class _Lazy:
    """Base class of placeholder tensors for weights that may not be in memory."""

    slot: WeightSlot

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _UNCHANGED:
            return args[0]
        if func in _ANSWERS:
            return _ANSWERS[func]
        if func in METADATA:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        args, kwargs = map_structure((args, dict(kwargs)), _load)
        return func(*args, **kwargs)

    def __reduce_ex__(self, protocol: Any) -> Any:
        reduced: Any = self.slot.fetch().detach().clone().__reduce_ex__(protocol)  # type: ignore[no-untyped-call]
        return reduced

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return self.slot.fetch().detach().clone()


class LazyParameter(_Lazy, nn.Parameter):
    """A parameter that is loaded by the first operation on it."""


class LazyBuffer(_Lazy, Tensor):
    """A buffer that is loaded by the first operation on it."""


def build_lazy_tensor(slot: WeightSlot) -> Tensor:
    """Return a tensor with the shape and dtype of a weight, without its memory.

    It is on the meta device, although it says that it is on the CPU: code that bypasses `__torch_function__` (scripted
    functions) raises an error, or returns a tensor without values.
    """
    bare = torch.empty(slot.shape, dtype=slot.dtype, device="meta")
    lazy: Any = torch.Tensor._make_subclass(LazyParameter if slot.is_parameter else LazyBuffer, bare, False)
    lazy.slot = slot
    return lazy  # type: ignore[no-any-return]


def compute_checksum(value: Tensor) -> int:
    """Return the sum of the values of a dense tensor as integers that wrap around; NumPy sums without a copy."""
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}.get(value.dtype.itemsize)
    if kind is None or not value.numel():
        return 0
    integers = value.detach().as_strided((value.numel(),), (1,)).view(kind).numpy()
    return int(np.add.reduce(integers, dtype=integers.dtype))


def _load(value: Any) -> Any:
    return value.slot.fetch() if isinstance(value, _Lazy) else value


class WeightTable(dict[str, Any]):
    """The `_parameters` or `_buffers` of a module; `slots` are the weights among them that are loaded when read.

    The dict itself holds lazy tensors, so that functions that bypass `__getitem__` work as well. A weight that the
    network replaces (`self.buffer = value`) stays in memory.
    """

    def __init__(self, values: Mapping[str, Any], slots: dict[str, WeightSlot]) -> None:
        super().__init__(dict(values) | {name: slot.lazy for name, slot in slots.items()})
        self.slots = slots

    def __getitem__(self, name: str) -> Any:
        slot = self.slots.get(name)
        return super().__getitem__(name) if slot is None else slot.fetch()

    def __setitem__(self, name: str, value: Any) -> None:
        self.slots.pop(name, None)
        super().__setitem__(name, value)

    def __delitem__(self, name: str) -> None:
        self.slots.pop(name, None)
        super().__delitem__(name)

    def update(self, *args: Any, **kwargs: Any) -> None:
        for name, value in dict(*args, **kwargs).items():
            self[name] = value

    def setdefault(self, name: str, default: Any = None) -> Any:
        if name not in self:
            self[name] = default
        return self[name]

    def pop(self, name: str, *default: Any) -> Any:
        if name not in self and default:
            return default[0]
        value = self[name]
        del self[name]
        return value

    def popitem(self) -> tuple[str, Any]:
        name = next(reversed(self))
        return name, self.pop(name)

    def clear(self) -> None:
        self.slots.clear()
        super().clear()

    def __ior__(self, other: Any) -> WeightTable:  # type: ignore[override,misc]
        self.update(other)
        return self

    def __reduce__(self) -> NoReturn:
        raise TesseraError(
            "a PhasedModel cannot be copied or pickled", do="save its state_dict(), or create another PhasedModel"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        self.__reduce__()
