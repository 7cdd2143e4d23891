"""torch.compile with frozen weights: batch norms are folded, weights reordered for the kernels, operators fused."""

from __future__ import annotations

import torch
import torch._dynamo
import torch._inductor.config
from torch._dynamo.exc import TorchDynamoException

from tessera.errors import Refused, get_first_line
from tessera.inference.engines.engine import EngineRequest, Session
from tessera.inference.engines.pytorch import TorchSession


def build_session(request: EngineRequest) -> Session:
    """Compile the network for one batch size, with channels-last memory."""
    # One network is compiled at a time. A pool of compiler processes would outlive the compilation and share its cores.
    torch._inductor.config.compile_threads = 1
    torch.set_num_threads(request.threads)  # before compiling: the number is compiled into the kernels
    torch._dynamo.reset()
    deployment = request.deployment
    module = deployment.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    compiled = torch.compile(module, dynamic=False, options={"freezing": True})
    session = TorchSession(compiled, compute=deployment.precision.compute, layout="NHWC")
    images = torch.zeros(
        deployment.compute_input_shape(request.batch_size), dtype=getattr(torch, deployment.pixels.dtype)
    )
    try:
        session.run(images.to(memory_format=torch.channels_last))  # the first call compiles
    except TorchDynamoException as error:
        raise Refused(f"torch.compile does not compile {deployment.network.name}: {get_first_line(error)}") from error
    return session
