"""torch.compile with frozen weights: batch norms folded, weights laid out for the kernels, the rest fused."""

from __future__ import annotations

import torch
import torch._dynamo
import torch._inductor.config
from torch._dynamo.exc import TorchDynamoException

from tessera.errors import Refused, first_line
from tessera.inference.engines.engine import Request, Session
from tessera.inference.engines.torch_session import TorchSession


class TorchCompile:
    """PyTorch through dynamo and inductor for one size of batch, channels last."""

    def __init__(self) -> None:
        # one network is compiled at a time: no pool of compilers that would outlive it and share its cores
        torch._inductor.config.compile_threads = 1

    def preload(self) -> None:
        # the compiler itself, which torch.compile would import in every launch
        import torch._inductor.compile_fx  # noqa: F401

    def build(self, request: Request) -> Session:
        torch.set_num_threads(request.threads)  # the number is built into the kernels
        torch._dynamo.reset()
        deployment = request.deployment
        module = deployment.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        compiled = torch.compile(module, dynamic=False, options={"freezing": True})
        session = TorchSession(compiled, compute=deployment.precision.compute, layout="NHWC")
        images = torch.zeros(
            deployment.input_shape(request.batch_size), dtype=getattr(torch, deployment.pixels.element)
        )
        try:
            session.run(images.to(memory_format=torch.channels_last))  # compiles
        except TorchDynamoException as error:
            raise Refused(f"torch.compile does not compile {deployment.network.name}: {first_line(error)}") from error
        return session
