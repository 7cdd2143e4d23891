"""PyTorch as it comes: every operator called from Python, images in NCHW."""

from __future__ import annotations

import torch

from tessera.inference.engines.engine import Request, Session
from tessera.inference.engines.torch_session import TorchSession


class TorchEager:
    """Eager mode: what a network costs before anybody does anything about it."""

    def preload(self) -> None:
        pass  # torch is imported

    def build(self, request: Request) -> Session:
        torch.set_num_threads(request.threads)
        return TorchSession(request.deployment.module, compute=request.deployment.precision.compute, layout="NCHW")
