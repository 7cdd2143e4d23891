"""Weights of a module that are loaded on access.

A module finds its weights in two dicts, `_parameters` and `_buffers`. A `WeightTable` replaces such a dict: reading a
weight by name (`self.weight`) loads its phase. Reading all weights at once (`parameters()`, `state_dict()`) gives
`LazyParameter`s and `LazyBuffer`s, which have shape, dtype and device, and are loaded by the first operation on them.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Protocol

import numpy as np
import torch
import torch.nn.functional as F
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
_UNCHANGED = (Tensor.detach, Tensor.requires_grad_, Tensor.data.__get__)  # type: ignore[attr-defined]
METADATA = {getattr(Tensor, name).__get__ for name in _METADATA_NAMES.split() if hasattr(Tensor, name)} | set(
    _METADATA_METHODS
)

MAX_CRC_BYTES = 1 << 20  # of larger tensors, the checksum is computed from sums
SUMMED_WORDS = 1021  # words of 8 bytes in one sum
_POINTERS = (Tensor.data_ptr, Tensor.untyped_storage)

# Metadata of the weight that differ from those of its lazy tensor, which has no memory.
_ANSWERS: dict[Any, Callable[[torch.device], Any]] = {
    Tensor.device.__get__: lambda device: device,
    Tensor.is_meta.__get__: lambda device: False,  # type: ignore[attr-defined]
    Tensor.is_cpu.__get__: lambda device: device.type == "cpu",  # type: ignore[attr-defined]
    Tensor.is_cuda.__get__: lambda device: device.type == "cuda",  # type: ignore[attr-defined]
    Tensor.get_device: lambda device: -1 if device.type == "cpu" else device.index,
    torch.get_device: lambda device: -1 if device.type == "cpu" else device.index,
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
        "device",
        "dtype",
        "exposed",
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
        self.device = torch.device("cpu")  # that the weight is loaded to
        self.tensor: Tensor | None = None
        self.phase: object = None
        self.owner: SlotOwner | None = None
        self.version = 0
        self.module: nn.Module | None = None
        self.checksum: int | None = None  # of the stored values
        self.checked = False  # whether the values were compared with the checksum once
        self.exposed = False  # whether the network got access to the memory that leaves no version (`.data`, numpy)
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
        kind = LoadedParameter if self.is_parameter else LoadedBuffer
        loaded: Any = torch.Tensor._make_subclass(kind, value, False)
        if self.attributes:
            loaded.__dict__.update(self.attributes)
        loaded.source = (self, loaded._version)
        self.tensor, self.version = loaded, loaded._version

    @property
    def is_written(self) -> bool:
        """Whether the network wrote into the weight since it was loaded.

        Norms in training mode write without a new version; so do writes through `.data`: see `compare_checksum`.
        """
        if self.tensor is None:
            return False
        if self.tensor._version != self.version:
            return True
        return not self.is_parameter and self.module is not None and self.module.training

    def compare_checksum(self) -> bool:
        """Return whether the values differ from the stored values.

        They are compared once, and after every load in which the network got access that leaves no version.
        """
        if self.checksum is None or self.tensor is None or (self.checked and not self.exposed):
            return False
        self.checked, self.exposed = True, False
        return compute_checksum(self.tensor) != self.checksum

    def matches(self, value: Any) -> bool:
        """Return whether a value is this weight, as the network has read it: it can be loaded again."""
        source, version = getattr(value, "source", (None, 0))
        unchanged = source is self and value._version == version and self.owner is not None
        return value is self.lazy or (value is not None and value is self.tensor) or unchanged


def _expose(name: str) -> Any:
    """Return a method that notes the access of the network to the memory of a weight, and calls the tensor's method."""
    method = getattr(Tensor, name)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.expose()
        return method(self, *args, **kwargs)

    return functools.wraps(method)(call)


class _Loaded:
    """Base class of weights in memory. `source` is the slot of the weight, and the version when it was loaded."""

    source: tuple[WeightSlot, int]

    def expose(self) -> None:
        if "source" in self.__dict__:
            self.source[0].exposed = True

    @property
    def data(self) -> Tensor:
        self.expose()
        return Tensor.data.__get__(self)  # type: ignore[attr-defined,no-any-return]

    @data.setter
    def data(self, value: Tensor) -> None:
        self.expose()
        Tensor.data.__set__(self, value)  # type: ignore[attr-defined]

    detach, numpy, data_ptr, untyped_storage = map(_expose, ("detach", "numpy", "data_ptr", "untyped_storage"))
    __array__, __dlpack__ = map(_expose, ("__array__", "__dlpack__"))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        plain: Any = self
        copied = Tensor.detach(plain).clone()
        if not isinstance(self, nn.Parameter):
            return copied
        return nn.Parameter(copied, requires_grad=bool(plain.requires_grad))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__deepcopy__({}).__reduce_ex__(protocol)


class LoadedParameter(_Loaded, nn.Parameter):
    """A parameter in memory; torch treats it as a parameter."""


class LoadedBuffer(_Loaded, Tensor):
    """A buffer in memory; torch treats it as a tensor."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]


class PartsReader:
    """The owner of a weight that is cut into parts of rows: `parts` has first row, last row (exclusive) and slot."""

    current: object = object()  # the phase of no weight, so that every read calls `fetch`

    def __init__(self, parts: Sequence[tuple[int, int, WeightSlot]]) -> None:
        self.parts = parts

    def fetch(self, slot: WeightSlot) -> Tensor:
        """Return the whole weight, in memory of its own; a change of it is noticed by the caller."""
        with torch.inference_mode(False), torch.no_grad():
            whole = torch.empty(slot.shape, dtype=slot.dtype, device=self.parts[0][2].device)
            for start, stop, part in self.parts:
                whole[start:stop].copy_(part.fetch())
        loaded: Any = torch.Tensor._make_subclass(nn.Parameter, whole, False)
        loaded.__dict__.update(slot.attributes)
        return loaded  # type: ignore[no-any-return]


def _get_parts(value: Any) -> Sequence[tuple[int, int, WeightSlot]] | None:
    return value.slot.owner.parts if isinstance(value, _Lazy) and isinstance(value.slot.owner, PartsReader) else None


def _compute_linear(input: Any, weight: Any, bias: Any = None) -> Any:
    parts, biases = _get_parts(weight), _get_parts(bias)
    if parts is None:
        return NotImplemented
    if biases is None and bias is not None:
        bias = _load(bias)

    def compute(number: int) -> Tensor:  # no variable refers to a part while the next part is loaded
        start, stop, part = parts[number]
        own = None if bias is None else bias[start:stop] if biases is None else biases[number][2].fetch()
        return F.linear(_load(input), part.fetch(), own)

    return torch.cat([compute(number) for number in range(len(parts))], -1)


def _compute_embedding(
    input: Any, weight: Any, padding_idx: Any = None, max_norm: Any = None, *args: Any, **kwargs: Any
) -> Any:
    parts = _get_parts(weight)
    if parts is None or max_norm is not None:
        return NotImplemented
    numbers = _load(input).reshape(-1)
    if numbers.numel() and not 0 <= int(numbers.min()) <= int(numbers.max()) < weight.shape[0]:
        raise IndexError("index out of range in self")
    output = torch.empty((numbers.numel(), *weight.shape[1:]), dtype=weight.dtype, device=numbers.device)
    for start, stop, part in parts:
        places = ((numbers >= start) & (numbers < stop)).nonzero().squeeze(1)
        if places.numel():  # other parts are not loaded
            output[places] = part.fetch()[numbers[places] - start]
    return output.view(*input.shape, *weight.shape[1:])


# Functions that are computed part by part if a weight is cut.
_BY_PARTS: dict[Any, Callable[..., Any]] = {F.linear: _compute_linear, F.embedding: _compute_embedding}


class _Lazy:
    """Base class of placeholder tensors for weights that may not be in memory."""

    slot: WeightSlot

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _UNCHANGED or (func is Tensor.cpu and args[0].slot.device.type == "cpu"):
            return args[0]
        if func in _ANSWERS:
            return _ANSWERS[func](args[0].slot.device)
        if func in _POINTERS and getattr(args[0], "snapshot", None) is not None:
            return func(args[0].snapshot(), *args[1:], **kwargs)
        if func in METADATA:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        if func in _BY_PARTS and (result := _BY_PARTS[func](*args, **kwargs)) is not NotImplemented:
            return result
        joined: list[tuple[WeightSlot, Tensor]] = []  # whole weights of cut layers

        def load(value: Any) -> Any:
            loaded = _load(value)
            if _get_parts(value) is not None:
                joined.append((value.slot, loaded))
            return loaded

        args, kwargs = map_structure((args, dict(kwargs)), load)
        result = func(*args, **kwargs)
        for slot, whole in joined:
            if whole._version:  # written: it stays in memory as a whole
                slot.set_tensor(whole)
                slot.owner = None
        return result

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


def build_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state dict whose lazy tensors can be passed to functions that read their memory by address.

    Such a function (of safetensors) needs the memory as long as the state dict exists: the weight is then copied.
    """
    lazies: dict[int, Any] = {}
    for value in state.values():
        if isinstance(value, _Lazy) and id(value) not in lazies:
            lazy: Any = build_lazy_tensor(value.slot)
            lazy.snapshot = functools.cache(functools.partial(_copy_weight, value.slot))
            lazies[id(value)] = lazy
    return {name: lazies.get(id(value), value) for name, value in state.items()}


def _copy_weight(slot: WeightSlot) -> Tensor:
    return Tensor.detach(slot.fetch()).clone()


def compute_checksum(value: Tensor) -> int:
    """Return a checksum of the values of a dense tensor.

    Of a large tensor, it is the CRC of the sums of its parts, which NumPy adds as fast as memory is read. The length of
    a part is odd: sums wrap around, so a multiplication of all values by 2 could leave an even number of them as it is.
    """
    value = Tensor.cpu(value)
    flat = Tensor.detach(value).as_strided((value.numel(),), (1,)).view(torch.uint8).numpy()
    if flat.nbytes <= MAX_CRC_BYTES:
        return zlib.crc32(flat.data)
    whole = flat.nbytes // (8 * SUMMED_WORDS) * 8 * SUMMED_WORDS
    sums = np.add.reduce(flat[:whole].view(np.int64).reshape(-1, SUMMED_WORDS), axis=1)
    return zlib.crc32(flat[whole:].data, zlib.crc32(sums.data))


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
        self._all_slots = dict(slots)

    def __getitem__(self, name: str) -> Any:
        slot = self.slots.get(name)
        if slot is None or isinstance(slot.owner, PartsReader):
            return super().__getitem__(name)
        return slot.fetch()

    def __setitem__(self, name: str, value: Any) -> None:
        slot = self._all_slots.get(name)
        if slot is not None and slot.matches(value):  # put back, as torch.func.functional_call does
            self.slots[name] = slot
            super().__setitem__(name, slot.lazy)
            return
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
