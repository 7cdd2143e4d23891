"""PyTorch in eager mode, with NCHW or channels-last memory, compiled by torch.compile, or captured as a graph."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from tessera.device import ComputeDevice
from tessera.device.graphs import CapturedGraph
from tessera.errors import Refused, get_first_line
from tessera.inference.data.images import Array, Layout
from tessera.inference.engines.engine import EngineRequest, SequentialSession, Session

MEMORY_FORMATS = {"NCHW": torch.contiguous_format, "NHWC": torch.channels_last}


def build_eager(request: EngineRequest) -> Session:
    """Build a session in eager mode with NCHW memory."""
    torch.set_num_threads(request.threads)
    return _open_session(request, place_module(request.deployment.module, request.device, "NCHW"), "NCHW")


def build_channels_last(request: EngineRequest) -> Session:
    """Build a session in eager mode with channels-last memory, which saves reordering for convolutions."""
    torch.set_num_threads(request.threads)
    return _open_session(request, place_module(request.deployment.module, request.device, "NHWC"), "NHWC")


def build_compiled(request: EngineRequest) -> Session:
    """Compile the network for one batch size, with channels-last memory and frozen weights.

    Freezing folds batch norms, reorders weights for the kernels and fuses operators.
    """
    import torch._dynamo
    import torch._inductor.config
    from torch._dynamo.exc import TorchDynamoException

    # One network is compiled at a time. A pool of compiler processes would outlive the compilation and share its cores.
    torch._inductor.config.compile_threads = 1
    torch.set_num_threads(request.threads)  # before compiling: the number is compiled into the kernels
    torch._dynamo.reset()
    deployment = request.deployment
    module = place_module(deployment.module, request.device, "NHWC")
    compiled = torch.compile(module, dynamic=False, options={"freezing": True})
    session = _open_session(request, compiled, "NHWC")
    images = deployment.make_zeros(request.batch_size).to(memory_format=torch.channels_last)
    try:
        session.run(images.to(request.device.torch_device))  # the first call compiles
    except TorchDynamoException as error:
        raise Refused(f"torch.compile does not compile {deployment.network.name}: {get_first_line(error)}") from error
    return session


def build_graph(request: EngineRequest) -> Session:
    """Capture the network for one batch size as a graph of the device, which is launched at once."""
    torch.set_num_threads(request.threads)
    module, device = place_module(request.deployment.module, request.device, "NHWC"), request.device
    zeros = request.deployment.make_zeros(request.batch_size).to(memory_format=torch.channels_last)
    images = zeros.to(device.torch_device)
    with torch.no_grad():
        graph = CapturedGraph(device, lambda: module(images))

    def replay(batch: Tensor) -> Any:
        images.copy_(batch)
        graph.replay()
        return graph.result

    return AcceleratorSession(replay, device, compute=request.deployment.precision.compute, layout="NHWC")


def place_module(module: nn.Module, device: ComputeDevice, layout: Layout) -> nn.Module:
    """Return a network on a device. The original stays on the CPU: it is the reference of checks."""
    if device.asynchronous:
        module = copy.deepcopy(module).to(device.torch_device)
    if layout == "NHWC":
        module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return module


def _open_session(request: EngineRequest, call: Callable[[Tensor], Any], layout: Layout) -> Session:
    compute = request.deployment.precision.compute
    if request.device.asynchronous:
        return AcceleratorSession(call, request.device, compute=compute, layout=layout)
    return TorchSession(call, compute=compute, layout=layout)


class TorchSession(SequentialSession):
    """A torch module called without autograd, on tensors that share memory with the input arrays."""

    def __init__(self, call: Callable[[Tensor], Any], *, compute: str, layout: Layout) -> None:
        self._call, self.compute, self.layout = call, compute, layout
        self._format = MEMORY_FORMATS[layout]

    def prepare_input(self, batch: Array) -> Tensor:
        return torch.from_numpy(batch).contiguous(memory_format=self._format)

    def run(self, inputs: Tensor) -> Any:
        with torch.no_grad():
            return self._call(inputs)

    def read_outputs(self, result: Any) -> tuple[Array, ...]:
        return to_arrays(result)

    def close(self) -> None:
        del self._call


class AcceleratorSession(SequentialSession):
    """A torch module on an accelerator, with images and outputs copied through pinned memory.

    Images are copied when the input is prepared, behind the work before it. A run ends when its outputs are in host
    memory.
    """

    def __init__(self, call: Callable[[Tensor], Any], device: ComputeDevice, *, compute: str, layout: Layout) -> None:
        self._call, self._device, self.compute, self.layout = call, device, compute, layout
        self.device = device.describe().label
        self._staging: dict[tuple[Any, ...], Tensor] = {}
        self._copied: dict[tuple[Any, ...], Any] = {}
        self._outputs: tuple[Tensor, ...] = ()

    def prepare_input(self, batch: Array) -> Tensor:
        images = torch.from_numpy(batch)
        key = (*images.shape, images.dtype)
        if key in self._copied:
            self._device.wait_for(self._copied[key])  # the copy of the batch before still reads the pinned memory
        else:
            self._staging[key] = self._allocate_staging(images)
        self._staging[key].copy_(images)
        there = torch.empty_like(self._staging[key], device=self._device.torch_device, pin_memory=False)
        self._device.submit_copy(self._staging[key], there)
        self._copied[key] = self._device.mark_time()
        return there

    def _allocate_staging(self, images: Tensor) -> Tensor:
        n, c, h, w = images.shape
        if self.layout == "NHWC":
            return self._device.allocate_host((n, h, w, c), images.dtype).permute(0, 3, 1, 2)
        return self._device.allocate_host((n, c, h, w), images.dtype)

    def run(self, inputs: Tensor) -> tuple[Tensor, ...]:
        device = self._device
        with torch.no_grad():
            results = [leaf for leaf in tree_leaves(self._call(inputs)) if isinstance(leaf, Tensor)]
            if [(one.shape, one.dtype) for one in results] != [(one.shape, one.dtype) for one in self._outputs]:
                self._outputs = tuple(device.allocate_host(tuple(one.shape), one.dtype) for one in results)
            for result, output in zip(results, self._outputs, strict=True):
                device.submit_copy(result, output)
            device.wait_for(device.mark_time())
        return self._outputs

    def read_outputs(self, result: tuple[Tensor, ...]) -> tuple[Array, ...]:
        return to_arrays(result)

    def close(self) -> None:
        self._device.synchronize()
        self._staging.clear()
        self._copied.clear()
        self._outputs = ()
        del self._call


def to_arrays(result: Any) -> tuple[Array, ...]:
    """Return all tensors of a nested result as float32 arrays."""
    return tuple(leaf.float().numpy() for leaf in tree_leaves(result) if isinstance(leaf, Tensor))
