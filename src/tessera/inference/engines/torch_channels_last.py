"""PyTorch, eager, with the channels of a pixel side by side in memory."""

from __future__ import annotations

import torch

from tessera.inference.engines.engine import Request, Session
from tessera.inference.engines.torch_session import TorchSession


class TorchChannelsLast:
    """Eager mode in the layout in which convolutions need no reordering."""

    def preload(self) -> None:
        pass  # torch is imported

    def build(self, request: Request) -> Session:
        torch.set_num_threads(request.threads)
        module = request.deployment.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return TorchSession(module, compute=request.deployment.precision.compute, layout="NHWC")
