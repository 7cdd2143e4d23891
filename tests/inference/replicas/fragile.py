"""Test network that kills one of its replica processes during a forward pass; loaded as `module:callable`."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from torch import Tensor, nn

from tests.inference.small_networks import Classifier

VICTIM = "TESSERA_TEST_VICTIM"  # path of a file; the replica that creates it dies
CALLS = "TESSERA_TEST_CALLS"  # number of forward passes before the death


class FragileNetwork(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.passes = 0
        self.doomed = False

    def forward(self, x: Tensor) -> Tensor:
        if x.is_meta:  # a pass that counts FLOPs, on a copy of the module
            return super().forward(x)
        if not self.passes:
            try:
                Path(os.environ[VICTIM]).touch(exist_ok=False)
                self.doomed = True
            except FileExistsError:
                pass
        self.passes += 1
        if self.doomed and self.passes > int(os.environ[CALLS]):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)


def build_fragile_network() -> nn.Module:
    return FragileNetwork()
