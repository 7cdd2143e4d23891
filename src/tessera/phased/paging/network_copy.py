"""A copy of a network whose weights are loaded on first access, and its units (the smallest parts of a phase)."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from types import CellType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from tessera.errors import TesseraError, get_first_line
from tessera.phased.paging.meta_copy import BATCH_COUNTER
from tessera.phased.paging.weight_table import StreamedModule, WeightSlot, WeightTable

MIN_STREAMED_BUFFER_BYTES = 64 << 10  # smaller buffers of the user's modules stay in memory
# Modules whose forward reads the weights of their children: one unit with all of them.
COMPOSITE_MODULES = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightUnit:
    """The weights of one module, which are loaded together; `weights` has their names in the store.

    `rows` is the range of rows if the unit is a part of a large layer.
    """

    module: str
    weights: tuple[str, ...]
    rows: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkCopy:
    """A copy of a network without its weights: its units in the order of registration, and a slot for every weight.

    `values` are the weights of the original network (meta tensors if the network is on the meta device). `unstored` are
    weights that no checkpoint contains (non-persistent buffers). `pinned_bytes` counts weights that always stay in
    memory.
    """

    model: nn.Module
    units: tuple[WeightUnit, ...]
    slots: dict[str, WeightSlot]
    values: dict[str, Tensor]
    unstored: frozenset[str]
    pinned_bytes: int

    @property
    def aliases(self) -> dict[str, tuple[str, ...]]:
        """All names of every weight, by its stored name."""
        return {name: slot.names for name, slot in self.slots.items()}


def copy_network(model: nn.Module) -> NetworkCopy:
    """Copy a network without its weights. The copy holds no reference to the original weight memory."""
    _refuse_closures(model)
    members = list(_list_members(model))
    shared = _find_shared_memory(model)
    members = [member for member in members if id(member[2]) not in shared]
    names: dict[int, list[str]] = {}
    for name, _, value, _ in members:
        names.setdefault(id(value), []).append(name)
    persistent = {id(value) for value in model.state_dict(keep_vars=True).values() if isinstance(value, Tensor)}
    units: list[WeightUnit] = []
    slots: dict[str, WeightSlot] = {}
    values: dict[str, Tensor] = {}
    unstored: set[str] = set()
    slot_of: dict[int, WeightSlot] = {}
    by_unit: dict[str, list[str]] = {}
    for name, unit, value, _ in members:
        own = by_unit.setdefault(unit, [])
        if id(value) in slot_of:
            continue
        slot = WeightSlot(tuple(dict.fromkeys(names[id(value)])), value)
        slot_of[id(value)] = slots[name] = slot
        values[name] = value
        own.append(name)
        if id(value) not in persistent:
            unstored.add(name)
    for module, own in by_unit.items():
        if own:
            for name in own:
                slots[name].unit = len(units)
            units.append(WeightUnit(module=module, weights=tuple(own)))
    if not units:
        raise TesseraError("the network has no weights to stream", got=type(model).__name__)
    memo: dict[int, Any] = {key: slot.lazy for key, slot in slot_of.items()}
    memo |= {id(module): module for module in model.modules() if isinstance(module, StreamedModule)}
    for part in model.modules():  # deepcopy refuses tensors with a gradient function, such as those of weight_norm
        memo |= {id(v): v.detach() for v in part.__dict__.values() if isinstance(v, Tensor) and v.grad_fn is not None}
    try:
        copied = copy.deepcopy(model, memo)
    except TesseraError:
        raise
    except Exception as error:  # a model may hold any objects
        raise TesseraError(
            f"{type(model).__name__} cannot be copied without its weights: {get_first_line(error)}",
            do="remove objects that cannot be copied from the model",
        ) from error
    _install_tables(copied, slots)
    pinned = sum(t.nbytes for t in (*copied.parameters(), *copied.buffers()) if not hasattr(t, "slot"))
    return NetworkCopy(
        model=copied,
        units=tuple(units),
        slots=slots,
        values=values,
        unstored=frozenset(unstored),
        pinned_bytes=pinned,
    )


def _refuse_closures(model: nn.Module) -> None:
    """Raise an error if a function that is an attribute of a module uses a module of the original network."""
    nested = {id(part) for module in model.modules() if isinstance(module, StreamedModule) for part in module.modules()}
    modules = {id(module) for module in model.modules()} - nested
    for prefix, module in model.named_modules():
        if id(module) not in modules or "_orig_mod" in module._modules:  # the copy of a compiled module compiles anew
            continue
        for name, value in module.__dict__.items():
            for function in value.values() if isinstance(value, dict) else (value,):
                if not isinstance(function, FunctionType):
                    continue
                cells = [_get_cell(cell) for cell in function.__closure__ or ()]
                used = [*cells, *(getattr(cell, "__self__", None) for cell in cells), *(function.__defaults__ or ())]
                if any(id(item) in modules for item in used if item is not None):
                    raise TesseraError(
                        "a function in an attribute of the network refers to a module of the original network",
                        got=".".join(filter(None, (prefix, name))),
                        do="make the function a method, or pass the module as an argument",
                    )


def _get_cell(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return None


def _find_shared_memory(model: nn.Module) -> set[int]:
    """Return the ids of buffers that overlap with other weights in memory, and of these weights: they are views."""
    extents = []
    for value in {id(value): value for value in (*model.parameters(), *model.buffers())}.values():
        if type(value) in (Tensor, nn.Parameter) and value.layout == torch.strided and value.device.type == "cpu":
            last = sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
            if value.numel():
                extents.append((value.data_ptr(), value.data_ptr() + (last + 1) * value.itemsize, value))
    shared: set[int] = set()
    end, largest = 0, None  # the value that ends last
    for start, stop, value in sorted(extents, key=lambda extent: extent[0]):
        if start < end and not (isinstance(value, nn.Parameter) and isinstance(largest, nn.Parameter)):
            shared |= {id(value), id(largest)}
        if stop > end:
            end, largest = stop, value
    return shared


def _list_members(model: nn.Module) -> Iterator[tuple[str, str, Tensor, nn.Module]]:
    """Yield name, unit, value and module of every streamed weight, in the order of registration."""
    composite = inner = ""
    for prefix, module in model.named_modules(remove_duplicate=False):
        inner = inner if inner and prefix.startswith(f"{inner}.") else ""
        if isinstance(module, StreamedModule):
            inner = prefix
        if inner or isinstance(module, torch.jit.ScriptModule):
            continue
        if composite and not prefix.startswith(f"{composite}."):
            composite = ""
        if not composite and isinstance(module, COMPOSITE_MODULES):
            composite = prefix
        for table, is_buffer in ((module._parameters, False), (module._buffers, True)):
            for name, value in table.items():
                full = f"{prefix}.{name}" if prefix else name
                if isinstance(value, Tensor) and _is_streamed(module, name, full, value, is_buffer):
                    yield full, composite or prefix, value, module


def _is_streamed(module: nn.Module, name: str, full: str, value: Tensor, is_buffer: bool) -> bool:
    if type(value) not in (Tensor, nn.Parameter, nn.Buffer) and not isinstance(value, nn.Buffer):
        return False  # a tensor subclass of the user or of a library
    if value.layout != torch.strided or value.is_quantized or value.device.type not in ("cpu", "meta"):
        return False
    if not _is_dense(value):
        return False
    if is_buffer:
        if name == BATCH_COUNTER or module.training:  # batch norms write their buffers without a trace
            return False
        if name in module._non_persistent_buffers_set:
            if value.is_meta:
                raise TesseraError(
                    f"the non-persistent buffer {full} has no values",
                    do="create the buffer on the CPU, or pass a function that builds the model to `from_pretrained`",
                )
            return value.nbytes >= MIN_STREAMED_BUFFER_BYTES
        if not type(module).__module__.startswith("torch.nn."):  # a network may write into it in any way
            return value.nbytes >= MIN_STREAMED_BUFFER_BYTES
    return value.numel() > 0


def _is_dense(value: Tensor) -> bool:
    expected = 1
    for stride, size in sorted(zip(value.stride(), value.shape, strict=True)):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True


def _install_tables(model: nn.Module, slots: dict[str, WeightSlot]) -> None:
    """Replace the weight dicts of a copied network, and adapt modules that keep references to their weights."""
    slot_of_name = {name: slot for slot in slots.values() for name in slot.names}
    done = {id(part) for module in model.modules() if isinstance(module, StreamedModule) for part in module.modules()}
    for prefix, module in model.named_modules(remove_duplicate=False):
        if id(module) in done or isinstance(module, torch.jit.ScriptModule):
            continue
        done.add(id(module))
        for key in ("_parameters", "_buffers"):
            table = module.__dict__[key]
            full = {name: f"{prefix}.{name}" if prefix else name for name in table}
            own = {name: slot_of_name[full[name]] for name in table if full[name] in slot_of_name}
            for name, value in table.items():
                if isinstance(value, Tensor) and value.is_meta and name == BATCH_COUNTER:
                    table[name] = torch.zeros((), dtype=value.dtype)
            if own:
                module.__dict__[key] = WeightTable(table, own)
                for slot in own.values():
                    slot.module = module
        for value in module.parameters(recurse=False):
            if not hasattr(value, "slot"):
                value.requires_grad_(False)
        if isinstance(module, nn.RNNBase) and "_flat_weights" in module.__dict__:
            module.register_forward_pre_hook(_collect_flat_weights)
            module.register_forward_hook(_drop_flat_weights, always_call=True)
            _drop_flat_weights(module)
        module._compiled_call_impl = None  # a compiled module runs uncompiled: compiled code keeps its weights
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if child is not None and "_orig_mod" in child.__dict__.get("_modules", {}):
                parent._modules[name] = child._modules["_orig_mod"]


def _collect_flat_weights(module: nn.Module, args: Any) -> None:
    """Load the weights of a recurrent layer, which reads them from a list."""
    rnn: Any = module
    rnn._flat_weights = [getattr(rnn, name) for name in rnn._flat_weights_names]


def _drop_flat_weights(module: nn.Module, *_: Any) -> None:
    rnn: Any = module
    rnn._flat_weights = [dict.get(rnn._parameters, name) for name in rnn._flat_weights_names]
