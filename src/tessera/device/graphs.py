"""Capture the work of a call as a graph of the device, which is replayed with one launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tessera.device.device import ComputeDevice
from tessera.errors import Refused, get_first_line

WARMUP_CALLS = 3  # libraries choose kernels and allocate workspaces in the first calls, which cannot be captured


class CapturedGraph:
    """The captured work of a call. `result` is the result of the call; every replay overwrites its values."""

    def __init__(self, device: ComputeDevice, call: Callable[[], Any]) -> None:
        """Capture the work that `call` submits.

        Raises:
            Refused: torch offers no graphs for the device, or the call cannot be captured.
        """
        self._call = call  # a graph holds addresses: the tensors that the call uses must stay
        stream = device.make_stream()
        device.delay_stream(stream, device.mark_time())
        try:
            with device.use_stream(stream):
                for _ in range(WARMUP_CALLS):
                    call()
            device.synchronize()
            self._graph = torch.accelerator.Graph()
            with device.use_stream(stream), self._graph:
                self.result = call()
            device.synchronize()
        except (torch.AcceleratorError, torch.OutOfMemoryError):
            raise
        except (RuntimeError, AttributeError, NotImplementedError) as error:
            raise Refused(f"{device.name} does not capture this work as a graph: {get_first_line(error)}") from None

    def replay(self) -> None:
        """Submit the captured work to the current stream."""
        self._graph.replay()
