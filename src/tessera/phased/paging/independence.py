"""Detect whether a network is stateless across calls, and whether the samples of a mini-batch are independent."""

from __future__ import annotations

import itertools
import random
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from tessera.errors import TesseraError, get_first_line
from tessera.phased.paging.output_comparison import compute_difference
from tessera.phased.paging.sample_tracking import SampleTracker
from tessera.phased.paging.weight_table import StreamedModule, WeightSlot

Call = tuple[tuple[Any, ...], Mapping[str, Any]]
MAX_SPLIT_DIFFERENCE = 1e-4  # of the largest value: a split batch may sum in another order
MAX_COMPARED_BYTES = 1 << 20  # tensors without versions are compared up to this size
_IGNORED = ("_modules", "_flat_weights", "_flat_weight_refs", "forward")


@dataclass(frozen=True, slots=True, kw_only=True)
class StateEntry:
    """One value in the state of a network; `value` is kept alive, so that no other object gets its identity."""

    name: str
    value: Any
    tag: object

    def is_same(self, other: StateEntry) -> bool:
        same = self.value is other.value or (type(self.value) is type(other.value) and self.value == other.value)
        return bool(self.name == other.name and same and self.tag == other.tag)


class StateSnapshot:
    """The state of a network: attributes of its modules and everything in them, and the random generators.

    Tensors are compared by identity and version, other objects by identity and their attributes.
    """

    def __init__(self, network: nn.Module, *, generators: bool = True) -> None:
        self._entries: list[StateEntry] = []
        self._seen: set[int] = set()
        for prefix, module in network.named_modules():
            self._seen.add(id(module))
            if isinstance(module, StreamedModule):  # loads weights of its own
                self._add_entry(prefix, None, object())
                continue
            for name, value in module.__dict__.items():
                if name not in _IGNORED:
                    self._add(f"{prefix}.{name}" if prefix else name, value, traced=not module.training)
        if not generators:
            return
        self._add_entry("torch's random generator", None, bytes(torch.get_rng_state().numpy()))
        self._add_entry("the random generator of Python", None, random.getstate())
        if (numpy := sys.modules.get("numpy")) is not None:
            self._add_entry("numpy's random generator", None, str(numpy.random.get_state()))

    def find_change(self, other: StateSnapshot) -> str:
        """Return the name of the first value that differs; empty if there is none."""
        for mine, its in itertools.zip_longest(self._entries, other._entries):
            if mine is None or its is None or not mine.is_same(its):
                return str((mine or its).name)
        return ""

    def _add_entry(self, name: str, value: Any, tag: object) -> None:
        self._entries.append(StateEntry(name=name, value=value, tag=tag))

    def _add(self, name: str, value: Any, *, traced: bool = True) -> None:
        if isinstance(value, int | float | complex | str | bytes | None):
            self._add_entry(name, value, None)
            return
        if isinstance(value, Tensor):
            self._add_entry(name, Identity(value), _get_version(value, traced))
            return
        self._add_entry(name, Identity(value), _get_generator_state(value))
        if id(value) in self._seen or isinstance(value, type | nn.Module):
            return
        self._seen.add(id(value))
        if isinstance(value, dict):
            for key, item in dict.items(value):
                self._add(f"{name}.{key}" if isinstance(key, str) else f"{name}[{key!r}]", item, traced=traced)
        elif isinstance(value, list | tuple | deque):
            for number, item in enumerate(value):
                self._add(f"{name}[{number}]", item, traced=traced)
        elif isinstance(value, set | frozenset):
            self._add_entry(name, None, frozenset(map(id, value)))
        elif type(value).__module__ == "numpy":
            self._add_entry(name, None, value.tobytes() if hasattr(value, "tobytes") else None)
        elif not callable(value):
            for key, item in _list_attributes(value):
                self._add(f"{name}.{key}", item, traced=traced)


def _list_attributes(value: Any) -> list[tuple[str, Any]]:
    slots = [
        name for kind in type(value).__mro__ for name in kind.__dict__.get("__slots__", ()) if hasattr(value, name)
    ]
    return [*getattr(value, "__dict__", {}).items(), *((name, getattr(value, name)) for name in slots)]


class Identity:
    """A reference to an object that equals only references to the same object."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and other.value is self.value

    __hash__ = None  # type: ignore[assignment]


def _get_version(value: Tensor, traced: bool) -> object:
    """Return a value that changes with writes into a tensor; norms in training mode write without a new version."""
    slot = getattr(value, "slot", None)
    if isinstance(slot, WeightSlot):
        written = slot.owner is None or slot.is_written
        return (written, slot.tensor._version if written and slot.tensor is not None else 0)
    plain = value.layout == torch.strided and value.device.type == "cpu" and not value.is_quantized
    if (value.is_inference() or not traced) and plain and value.nbytes <= MAX_COMPARED_BYTES:
        return value.detach().resolve_conj().flatten().contiguous().view(torch.uint8).numpy().tobytes()
    return 0 if value.is_inference() else value._version


def _get_generator_state(value: Any) -> object:
    if isinstance(value, torch.Generator):
        return bytes(value.get_state().numpy())
    if isinstance(value, random.Random):
        return value.getstate()
    return str(value.bit_generator.state) if type(value).__module__.startswith("numpy.random") else None


class StateObserver:
    """Detects changes of a network's state during a run, including temporary ones that another run could see.

    Between two calls of `compare`, assignments to attributes of modules are noticed.
    """

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._before = StateSnapshot(network)
        self.changed = ""

    def compare(self) -> None:
        """Set `changed` to the name of a value that has changed."""
        self.changed = self.changed or self._before.find_change(StateSnapshot(self._network))

    @contextmanager
    def watch_assignments(self) -> Iterator[None]:
        """Notice assignments to attributes of the network's modules in this thread."""
        modules, thread = {id(module) for module in self._network.modules()}, threading.get_ident()
        original = nn.Module.__setattr__

        def assign(module: nn.Module, name: str, value: Any) -> None:
            if id(module) in modules and name not in _IGNORED and threading.get_ident() == thread:
                self.changed = self.changed or name
            original(module, name, value)

        nn.Module.__setattr__ = assign  # type: ignore[method-assign,assignment]
        try:
            yield
        finally:
            nn.Module.__setattr__ = original  # type: ignore[method-assign]


def describe_call(call: Call, network: nn.Module) -> str:
    """Return the kind of a call: its structure, shapes and dtypes, its other values, and the modes of the modules."""
    leaves, structure = pytree.tree_flatten(call)
    kinds = [_describe_leaf(value) for value in leaves]
    modes = "".join("t" if module.training else "e" for module in network.modules())
    return f"{structure} {kinds} {modes}"


def _describe_leaf(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{type(value).__name__} {tuple(value.shape)} {value.dtype}"
    return repr(value) if isinstance(value, int | float | complex | str | bytes | None) else type(value).__name__


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitCalls:
    """Mini-batches split into parts: one call per part (`calls`), and the number of parts per mini-batch (`counts`)."""

    calls: list[Call]
    counts: list[int]


class SampleSplitter:
    """Splits the samples of mini-batches over devices, if that gives the same result.

    The first mini-batch of every kind is computed whole and split, and the results are compared. Unless the user has
    stated that samples are independent (`promised`), a `SampleTracker` watches the whole computation, so that the
    decision does not depend on values. Mini-batches that may mix samples are not split; `reason` says why.
    """

    def __init__(self, parts: int, *, promised: bool) -> None:
        self._parts, self._promised = parts, promised
        self._analysed: set[str] = set()  # kinds of calls
        self._state: StateSnapshot | None = None
        self.reason = ""

    def split_calls(self, calls: Sequence[Call], network: nn.Module, run: Callable[[Call], Any]) -> SplitCalls | None:
        """Return the mini-batches in parts; None if one of them cannot be split."""
        if self.reason or not self._is_unchanged(network):
            return None
        split = [self._split(call, network, run) for call in calls]
        if any(parts is None for parts in split):
            return None
        return SplitCalls(
            calls=[call for parts in split if parts is not None for call in parts],
            counts=[len(parts) for parts in split if parts is not None],
        )

    def join(self, split: SplitCalls, results: Sequence[Any]) -> list[Any] | None:
        """Return the results of whole mini-batches from the results of their parts; None if they cannot be joined."""
        joined, at = [], 0
        for count in split.counts:
            parts = list(range(at, at + count))
            try:
                joined.append(_join([results[n] for n in parts], [_count_samples(split.calls[n]) for n in parts]))
            except ValueError as error:
                self.refuse(str(error))
                return None
            at += count
        return joined

    def refuse(self, reason: str) -> None:
        """Split no more mini-batches, for this reason."""
        if self._promised:
            raise _build_split_error(reason)
        self.reason = reason

    def _is_unchanged(self, network: nn.Module) -> bool:
        """Return whether all attributes are as they were analysed: the analysis saw one way through the network."""
        if self._promised or self._state is None:
            return True
        if name := self._state.find_change(StateSnapshot(network, generators=False)):
            self.reason = f"{name} has changed since the network was analysed"
        return not self.reason

    def _split(self, call: Call, network: nn.Module, run: Callable[[Call], Any]) -> list[Call] | None:
        leaves, structure = pytree.tree_flatten(call)
        parts = _split_leaves(leaves, self._parts)
        if parts is None:
            return None
        calls: list[Call] = [pytree.tree_unflatten(part, structure) for part in parts]
        key = describe_call(call, network)
        if key not in self._analysed:
            if obstacle := self._find_obstacle(call, calls, run):
                self.refuse(obstacle)
                return None
            self._analysed.add(key)
            if self._state is None and not self._promised:
                self._state = StateSnapshot(network, generators=False)
        return calls

    def _find_obstacle(self, call: Call, parts: list[Call], run: Callable[[Call], Any]) -> str:
        """Return why a mini-batch cannot be split; empty if it can."""
        whole_call, part_calls = pytree.tree_map(lambda v: v.clone() if isinstance(v, Tensor) else v, (call, parts))
        if self._promised:
            whole = run(whole_call)
        else:
            tensors = [value for value in pytree.tree_leaves(whole_call) if isinstance(value, Tensor)]
            tracker = SampleTracker(tensors, _count_samples(call))
            with tracker.watch():
                whole = run(whole_call)
            if obstacle := tracker.find_obstacle(whole):
                return obstacle
        try:
            split = _join([run(part) for part in part_calls], [_count_samples(part) for part in parts])
        except Exception as error:  # a network may refuse parts of a mini-batch in any way
            return get_first_line(error)
        difference = compute_difference(split, whole, by_feature=True)
        return "" if difference <= MAX_SPLIT_DIFFERENCE else f"the results of the parts differ by {difference:.1e}"


def _build_split_error(reason: str) -> TesseraError:
    return TesseraError(
        f"the samples of this network are not independent: {reason}", do="leave `independent_samples` out"
    )


def _count_samples(call: Call) -> int:
    return next(value.shape[0] for value in pytree.tree_leaves(call) if isinstance(value, Tensor) and value.dim())


def _split_leaves(leaves: Sequence[Any], parts: int) -> list[list[Any]] | None:
    sizes = [value.shape[0] for value in leaves if isinstance(value, Tensor) and value.dim()]
    if not sizes or sizes[0] < 2:
        return None
    samples, parts = sizes[0], min(parts, sizes[0])
    pieces = [
        value.tensor_split(parts) if isinstance(value, Tensor) and value.dim() and len(value) == samples else None
        for value in leaves
    ]
    return [
        [value if piece is None else piece[number] for value, piece in zip(leaves, pieces, strict=True)]
        for number in range(parts)
    ]


def _join(results: Sequence[Any], samples: Sequence[int]) -> Any:
    """Concatenate the results of the parts of a mini-batch; `samples` has the number of samples of each part."""
    flat = [pytree.tree_flatten(result) for result in results]
    if any(structure != flat[0][1] for _, structure in flat):
        raise ValueError("the results of the parts have different structures")
    leaves: list[Any] = []
    for values in zip(*(leaves for leaves, _ in flat), strict=True):
        if all(isinstance(v, Tensor) and v.shape[:1] == (n,) for v, n in zip(values, samples, strict=True)):
            leaves.append(torch.cat(values))
        elif isinstance(values[0], str | bool | None) and all(value == values[0] for value in values):
            leaves.append(values[0])
        else:
            raise ValueError(f"a result ({type(values[0]).__name__}) has not one value per sample")
    return pytree.tree_unflatten(leaves, flat[0][1])
