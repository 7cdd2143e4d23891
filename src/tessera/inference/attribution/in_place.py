"""Operators of a torch network timed where they run: each call of a pass, under the layer that makes it.

A dispatch mode sees every operator that really runs, whatever Python code called it; hooks on the modules tell which
layer is at work. The clock is read right around the operator, so that what the mode itself costs is in no operator's
time but between them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from tessera.inference.attribution.shares import Operator

REPEATS = 5


@dataclass(frozen=True, slots=True)
class Call:
    """An operator as it was called: layer, kind, FLOPs and bytes."""

    layer: str
    kind: str
    flops: float
    moved: float


class Layers:
    """Which layer is at work: its path, kept by hooks."""

    def __init__(self) -> None:
        self._paths = [""]

    @property
    def current(self) -> str:
        return self._paths[-1]

    @contextmanager
    def watching(self, module: nn.Module) -> Iterator[None]:
        handles = []
        for path, layer in module.named_modules():
            handles.append(layer.register_forward_pre_hook(self._enters(path)))
            handles.append(layer.register_forward_hook(self._leaves, always_call=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _enters(self, path: str) -> Callable[..., None]:
        def enters(module: nn.Module, args: Any) -> None:
            self._paths.append(path)

        return enters

    def _leaves(self, module: nn.Module, args: Any, output: Any) -> None:
        self._paths.pop()


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Times every operator; the first pass also takes down what each one is and how much it has to do."""

    def __init__(self, layers: Layers, *, describe: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._layers, self._describe = layers, describe
        self.seconds: list[float] = []
        self.calls: list[Call] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        before = time.perf_counter_ns()
        out = func(*args, **given)
        self.seconds.append((time.perf_counter_ns() - before) / 1e9)
        if self._describe:
            self.calls.append(
                Call(
                    layer=self._layers.current,
                    kind=kind_of(func, args),
                    flops=_flops(func, args, given, out),
                    moved=_moved(func, args, given, out),
                )
            )
        return out


def in_place(module: nn.Module, image: Tensor, repeats: int = REPEATS) -> list[Operator]:
    """The operators of a pass in their order, each with the median of its times over the repeats.

    Times do not depend on whether a call is described: that is done in a pass of its own.
    """
    calls, passes = described(module, image), []
    layers = Layers()
    with torch.no_grad(), layers.watching(module):
        for _ in range(repeats):
            timed = Watch(layers, describe=False)
            with timed:
                module(image)
            passes.append(timed.seconds)
    assert all(len(seconds) == len(calls) for seconds in passes), "a network that does the same every time"
    return [
        Operator(
            layer=call.layer,
            kind=call.kind,
            seconds=statistics.median(times),
            flops=call.flops,
            moved=call.moved,
        )
        for call, times in zip(calls, zip(*passes, strict=True), strict=True)
    ]


def described(module: nn.Module, image: Tensor) -> list[Call]:
    """What every operator of a pass is and has to do."""
    layers = Layers()
    watch = Watch(layers, describe=True)
    with torch.no_grad(), layers.watching(module), watch:
        module(image)
    return watch.calls


def kind_of(func: Any, args: tuple[Any, ...]) -> str:
    """What an operator is called in a table: a convolution by the shape of its work, all else by torch's name."""
    name = str(func._overloadpacket.__name__)
    if name != "convolution":
        return name
    image, weight, groups = args[0], args[1], int(args[8])
    if groups == image.shape[1] and groups > 1:
        return "convolution depthwise"
    size = "x".join(map(str, weight.shape[2:]))
    return f"convolution {size}" + (" grouped" if groups > 1 else "")


def _flops(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> float:
    """Multiply-adds count twice; what torch's own counter does not know, such as a relu, is not counted."""
    count = flop_registry.get(func._overloadpacket)
    return float(count(*args, **kwargs, out_val=out)) if count is not None else 0.0


def _moved(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> float:
    """Bytes of all tensors that are read and written; a view of an input moves nothing."""
    inputs = {tensor.data_ptr(): tensor.nbytes for tensor in tree_leaves((args, kwargs)) if isinstance(tensor, Tensor)}
    outputs = {tensor.data_ptr(): tensor.nbytes for tensor in tree_leaves(out) if isinstance(tensor, Tensor)}
    if not func._schema.is_mutable and outputs and outputs.keys() <= inputs.keys():
        return 0.0
    return float(sum(inputs.values()) + sum(outputs.values()))
