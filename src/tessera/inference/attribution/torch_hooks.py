"""Time every operator call in a forward pass of a torch network, together with the layer that calls it.

A dispatch mode sees every operator that runs; hooks on the modules track the current layer. Time marks are placed
directly around the operator, so the overhead of the mode is between operators and not in their times.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from tessera.device import ComputeDevice
from tessera.device.cpu import CpuDevice
from tessera.inference.attribution.measure import TimedOperator

TIMED_PASSES = 5  # forward passes over which the median time of each operator is taken


@dataclass(frozen=True, slots=True)
class HookedCall:
    """A call of an operator in a forward pass: its layer, kind, FLOPs and bytes moved."""

    layer: str
    kind: str
    flops: float
    moved: float


class LayerTracker:
    """Tracker of the path of the layer that currently runs, by module hooks."""

    def __init__(self) -> None:
        self._paths = [""]

    @property
    def current_layer(self) -> str:
        return self._paths[-1]

    @contextmanager
    def track(self, module: nn.Module) -> Iterator[None]:
        """Track the current layer of a module inside the context."""
        handles = []
        for path, layer in module.named_modules():
            handles.append(layer.register_forward_pre_hook(self._make_enter_hook(path)))
            handles.append(layer.register_forward_hook(self._leave_layer, always_call=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _make_enter_hook(self, path: str) -> Callable[..., None]:
        def enter_layer(module: nn.Module, args: Any) -> None:
            self._paths.append(path)

        return enter_layer

    def _leave_layer(self, module: nn.Module, args: Any, output: Any) -> None:
        self._paths.pop()


class OperatorTimer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Dispatch mode that times every operator by marks; with `describe` it also records kind, FLOPs and bytes."""

    def __init__(self, layers: LayerTracker, device: ComputeDevice, *, describe: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._layers, self._device, self._describe = layers, device, describe
        self._marks: list[tuple[Any, Any]] = []
        self.calls: list[HookedCall] = []

    def read_seconds(self) -> list[float]:
        """Wait for the device and return the time of each operator."""
        self._device.synchronize()
        return [self._device.compute_seconds(start, end) for start, end in self._marks]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        keywords = dict(kwargs or {})
        start = self._device.mark_time()
        out = func(*args, **keywords)
        self._marks.append((start, self._device.mark_time()))
        if self._describe:
            self.calls.append(
                HookedCall(
                    layer=self._layers.current_layer,
                    kind=classify_operator(func, args),
                    flops=_count_flops(func, args, keywords, out),
                    moved=_count_bytes(func, args, keywords, out),
                )
            )
        return out


def time_operators(
    module: nn.Module, image: Tensor, repeats: int = TIMED_PASSES, device: ComputeDevice | None = None
) -> list[TimedOperator]:
    """Return the operators of a forward pass in call order, each with its median time over `repeats` passes.

    Kind, FLOPs and bytes are recorded in a separate pass, so that recording does not affect the times.
    """
    calls, passes = describe_operators(module, image), []
    layers, device = LayerTracker(), device or CpuDevice()
    with torch.no_grad(), layers.track(module):
        for _ in range(repeats):
            timed = OperatorTimer(layers, device, describe=False)
            with timed:
                module(image)
            passes.append(timed.read_seconds())
    assert all(len(seconds) == len(calls) for seconds in passes), "the network must make the same calls in every pass"
    return [
        TimedOperator(
            layer=call.layer, kind=call.kind, seconds=statistics.median(times), flops=call.flops, moved=call.moved
        )
        for call, times in zip(calls, zip(*passes, strict=True), strict=True)
    ]


def describe_operators(module: nn.Module, image: Tensor) -> list[HookedCall]:
    """Return the operator calls of a forward pass with their kind, FLOPs and bytes."""
    layers = LayerTracker()
    timer = OperatorTimer(layers, CpuDevice(), describe=True)
    with torch.no_grad(), layers.track(module), timer:
        module(image)
    return timer.calls


def classify_operator(func: Any, args: tuple[Any, ...]) -> str:
    """Return the kind of an operator for tables: for a convolution its kernel size and groups, else torch's name."""
    name = str(func._overloadpacket.__name__)
    if name != "convolution":
        return name
    image, weight, groups = args[0], args[1], int(args[8])
    if groups == image.shape[1] and groups > 1:
        return "convolution depthwise"
    size = "x".join(map(str, weight.shape[2:]))
    return f"convolution {size}" + (" grouped" if groups > 1 else "")


def _count_flops(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> float:
    """Count the FLOPs of a call, two per multiply-add; 0 for operators without a rule in torch, such as relu."""
    count = flop_registry.get(func._overloadpacket)
    return float(count(*args, **kwargs, out_val=out)) if count is not None else 0.0


def _count_bytes(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> float:
    """Count the bytes of all tensors that a call reads and writes; 0 for views."""
    inputs = {tensor.data_ptr(): tensor.nbytes for tensor in tree_leaves((args, kwargs)) if isinstance(tensor, Tensor)}
    outputs = {tensor.data_ptr(): tensor.nbytes for tensor in tree_leaves(out) if isinstance(tensor, Tensor)}
    if not func._schema.is_mutable and outputs and outputs.keys() <= inputs.keys():
        return 0.0
    return float(sum(inputs.values()) + sum(outputs.values()))
