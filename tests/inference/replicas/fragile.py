"""A network one of whose replicas dies in the middle of its work; `module:callable` names it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from torch import Tensor, nn

from tests.inference.small import Classifier

VICTIM = "TESSERA_TEST_VICTIM"  # a path: the first replica to make a file there is the one that dies
CALLS = "TESSERA_TEST_CALLS"  # after so many passes


class Fragile(Classifier):
    def __init__(self) -> None:
        super().__init__()
        self.passes = 0
        self.doomed = False

    def forward(self, x: Tensor) -> Tensor:
        if x.is_meta:  # FLOPs are counted, on a copy of it
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


def fragile() -> nn.Module:
    return Fragile()
