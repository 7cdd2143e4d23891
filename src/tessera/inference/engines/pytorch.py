"""PyTorch in eager mode, with NCHW or channels-last memory, and compiled by torch.compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from tessera.errors import Refused, get_first_line
from tessera.inference.data.images import Array, Layout
from tessera.inference.engines.engine import EngineRequest, SequentialSession, Session


def build_eager(request: EngineRequest) -> Session:
    """Build a session in eager mode with NCHW memory."""
    torch.set_num_threads(request.threads)
    return TorchSession(request.deployment.module, compute=request.deployment.precision.compute, layout="NCHW")


def build_channels_last(request: EngineRequest) -> Session:
    """Build a session in eager mode with channels-last memory, which saves reordering for convolutions."""
    torch.set_num_threads(request.threads)
    module = request.deployment.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return TorchSession(module, compute=request.deployment.precision.compute, layout="NHWC")


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
    module = deployment.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    compiled = torch.compile(module, dynamic=False, options={"freezing": True})
    session = TorchSession(compiled, compute=deployment.precision.compute, layout="NHWC")
    images = deployment.make_zeros(request.batch_size).to(memory_format=torch.channels_last)
    try:
        session.run(images)  # the first call compiles
    except TorchDynamoException as error:
        raise Refused(f"torch.compile does not compile {deployment.network.name}: {get_first_line(error)}") from error
    return session


class TorchSession(SequentialSession):
    """A torch module called without autograd, on tensors that share memory with the input arrays."""

    def __init__(self, call: Callable[[Tensor], Any], *, compute: str, layout: Layout) -> None:
        self._call, self.compute, self.layout = call, compute, layout
        self._format = torch.channels_last if layout == "NHWC" else torch.contiguous_format

    def prepare_input(self, batch: Array) -> Tensor:
        return torch.from_numpy(batch).contiguous(memory_format=self._format)

    def run(self, inputs: Tensor) -> Any:
        with torch.no_grad():
            return self._call(inputs)

    def read_outputs(self, result: Any) -> tuple[Array, ...]:
        return to_arrays(result)

    def close(self) -> None:
        del self._call


def to_arrays(result: Any) -> tuple[Array, ...]:
    """Return all tensors of a nested result as float32 arrays."""
    return tuple(leaf.float().numpy() for leaf in tree_leaves(result) if isinstance(leaf, Tensor))
