"""Recording of a network: run it once and keep every operation that torch executes.

The network runs its own Python code on tensors without values (torch's meta device); if that fails, for example because
the control flow reads values, it runs on the real weights. An operation that changes a tensor in place is recorded as a
new value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from tessera.errors import TesseraError, get_first_line


@dataclass(frozen=True, slots=True)
class ValueRef:
    """A recorded value: output `output` of call `call`. Call -1 stands for the inputs of the network."""

    call: int
    output: int = 0


@dataclass(frozen=True, slots=True)
class WeightRef:
    """A parameter or buffer of the network, by its qualified name."""

    name: str


@dataclass(slots=True)
class RecordedCall:
    """One operation of torch. Tensors in `args` and `kwargs` are replaced by `ValueRef` and `WeightRef`.

    `module` is the qualified name of the innermost module that made the call. `shapes` are the shapes of the outputs.
    """

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    module: str
    shapes: tuple[tuple[int, ...], ...]

    @property
    def name(self) -> str:
        """Name of the operation without overload, e.g. `convolution`."""
        return str(self.function.overloadpacket.__name__)

    def get_argument(self, name: str) -> Any:
        """Return the value of an argument by its name in the operation's schema."""
        for number, argument in enumerate(self.function._schema.arguments):
            if argument.name == name:
                if number < len(self.args):
                    return self.args[number]
                return self.kwargs.get(name, argument.default_value)
        raise KeyError(name)

    def list_references(self, kind: type) -> list[Any]:
        """Return all `ValueRef` or `WeightRef` of the arguments, in order."""
        found: list[Any] = []
        tree_map(lambda leaf: found.append(leaf) if isinstance(leaf, kind) else None, (self.args, self.kwargs))
        return found

    def replay(self, get_tensor: Any) -> tuple[torch.Tensor, ...]:
        """Execute the call again. `get_tensor` returns the tensor of a `ValueRef` or `WeightRef`."""

        def resolve(leaf: Any) -> Any:
            return get_tensor(leaf) if isinstance(leaf, ValueRef | WeightRef) else leaf

        args, kwargs = tree_map(resolve, (self.args, self.kwargs))
        written = [number for number, each in enumerate(self.function._schema.arguments) if _is_written(each)]
        args = tuple(arg.clone() if number in written else arg for number, arg in enumerate(args))
        return _list_tensors(self.function(*args, **_use_cpu(kwargs)))


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRecording:
    """The calls of a network in execution order, and its outputs."""

    calls: tuple[RecordedCall, ...]
    outputs: tuple[ValueRef, ...]
    input_shapes: tuple[tuple[int, ...], ...]
    weight_shapes: Mapping[str, tuple[int, ...]]


def record_network(module: nn.Module, inputs: Sequence[torch.Tensor], name: str = "the model") -> NetworkRecording:
    """Run a module in evaluation mode on `inputs`, of which only shapes and dtypes matter, and record its calls."""
    modes = {each: each.training for each in module.modules()}
    module.eval()
    try:
        meta = {key: tensor.detach().to("meta") for key, tensor in _iter_weights(module)}
        empty = [tensor.to("meta") for tensor in inputs]
        try:
            with torch.device("meta"):
                return _record(module, empty, meta)
        except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
            if any(tensor.is_meta for _, tensor in _iter_weights(module)):
                raise _build_run_error(name, inputs, error) from None
        try:
            return _record(module, [torch.zeros_like(tensor, device="cpu") for tensor in inputs], None)
        except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
            raise _build_run_error(name, inputs, error) from None
    finally:
        for each, training in modes.items():
            each.training = training


def _build_run_error(name: str, inputs: Sequence[torch.Tensor], error: Exception) -> TesseraError:
    sizes = " and ".join("x".join(map(str, tensor.shape[2:])) for tensor in inputs)
    return TesseraError(f"{name} does not accept images of {sizes}", got=get_first_line(error))


def _iter_weights(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def _record(
    module: nn.Module, inputs: list[torch.Tensor], weights: Mapping[str, torch.Tensor] | None
) -> NetworkRecording:
    recorder = CallRecording(module, inputs, dict(weights) if weights else dict(_iter_weights(module)))
    with torch.no_grad(), recorder.tracking_modules(), recorder:
        result = functional_call(module, dict(weights), tuple(inputs)) if weights else module(*inputs)
    outputs = tuple(recorder.find_reference(tensor) for tensor in _list_tensors(result))
    if not outputs or any(not isinstance(ref, ValueRef) for ref in outputs):
        raise TesseraError("the network returns no tensor that depends on its input", got=type(result).__name__)
    shapes = tuple(tuple(tensor.shape) for tensor in inputs)
    return NetworkRecording(
        calls=tuple(recorder.calls),
        outputs=outputs,
        input_shapes=shapes,
        weight_shapes={name: tuple(tensor.shape) for name, tensor in _iter_weights(module)},
    )


@dataclass(slots=True)
class _TensorState:
    """Reference of a tensor, the memory that it shares with its views, and the version of the memory that it saw."""

    reference: Any
    memory: int
    version: int
    tensor: torch.Tensor = field(repr=False)  # keeps the tensor alive, so that its id is not reused


class CallRecording(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Dispatch mode that records every call."""

    def __init__(self, module: nn.Module, inputs: Sequence[torch.Tensor], weights: Mapping[str, torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[RecordedCall] = []
        self._names = {id(each): name for name, each in module.named_modules()}
        self._stack: list[str] = []
        self._versions: list[int] = []
        self._states: dict[int, _TensorState] = {}
        for name, tensor in weights.items():
            self._add(tensor, WeightRef(name))
        for number, tensor in enumerate(inputs):
            self._add(tensor, ValueRef(-1, number))

    @contextmanager
    def tracking_modules(self) -> Iterator[None]:
        """Record which module makes a call."""

        def enter(module: nn.Module, args: Any) -> None:
            self._stack.append(self._names.get(id(module), self._stack[-1] if self._stack else ""))

        def leave(module: nn.Module, args: Any, result: Any) -> None:
            self._stack.pop()

        handles = [register_module_forward_pre_hook(enter), register_module_forward_hook(leave, always_call=True)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _add(self, tensor: torch.Tensor, reference: Any, memory: int | None = None) -> None:
        if memory is None:
            memory = len(self._versions)
            self._versions.append(0)
        self._states[id(tensor)] = _TensorState(reference, memory, self._versions[memory], tensor)

    def find_reference(self, tensor: torch.Tensor) -> Any:
        """Return the reference of a tensor; a tensor that no recorded call made is returned as it is."""
        state = self._states.get(id(tensor))
        if state is None:
            return tensor
        if state.version != self._versions[state.memory]:
            raise TesseraError(
                "the network changes a tensor in place through a view of it",
                got=f"module {self._stack[-1] if self._stack else ''!r}",
                do="use operations that return a new tensor",
            )
        return state.reference

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}

        def refer(leaf: Any) -> Any:
            return self.find_reference(leaf) if isinstance(leaf, torch.Tensor) else leaf

        kept_args, kept_kwargs = tree_map(refer, (tuple(args), dict(kwargs)))
        result = func(*args, **kwargs)
        tensors = _list_tensors(result)
        if not tensors:
            return result
        number = len(self.calls)
        module = self._stack[-1] if self._stack else ""
        shapes = tuple(tuple(tensor.shape) for tensor in tensors)
        self.calls.append(RecordedCall(func, kept_args, kept_kwargs, module, shapes))
        schema = func._schema
        written = {id(args[n]) for n, each in enumerate(schema.arguments) if n < len(args) and _is_written(each)}
        viewed = next(
            (args[n] for n, each in enumerate(schema.arguments) if each.alias_info is not None and n < len(args)), None
        )
        for output, tensor in enumerate(tensors):
            known = self._states.get(id(tensor))
            if id(tensor) in written and known is not None:
                self._versions[known.memory] += 1
                self._add(tensor, ValueRef(number, output), known.memory)
            elif known is None:
                source = self._states.get(id(viewed)) if viewed is not None else None
                self._add(tensor, ValueRef(number, output), source.memory if source else None)
        return result


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _list_tensors(result: Any) -> tuple[torch.Tensor, ...]:
    """Return all tensors of a nested result, in order."""
    found: list[torch.Tensor] = []
    tree_map(lambda leaf: found.append(leaf) if isinstance(leaf, torch.Tensor) else None, result)
    return tuple(found)


def _use_cpu(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return keyword arguments whose `device` is the CPU: networks are recorded on the meta device."""
    return {**kwargs, "device": torch.device("cpu")} if kwargs.get("device") is not None else kwargs
