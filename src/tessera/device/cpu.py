"""The CPU as a device: every call returns when its work is complete."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from tessera.device.device import DeviceDescription, DeviceMemory
from tessera.device.driver import DriverReading
from tessera.errors import TesseraError
from tessera.measure.memory import flush_caches
from tessera.measure.memory_limits import get_available_bytes


class CpuDevice:
    """The CPU. Time marks are readings of the host's clock, and streams are no-ops."""

    name = "cpu"
    asynchronous = False
    torch_device = torch.device("cpu")

    def describe(self) -> DeviceDescription:
        return DeviceDescription(name=self.name, model=torch.backends.cpu.get_cpu_capability())

    def supports_dtype(self, dtype: torch.dtype) -> bool:
        return True

    def synchronize(self) -> None:
        return None

    def mark_time(self, stream: Any = None) -> int:
        return time.perf_counter_ns()

    def wait_for(self, mark: Any) -> None:
        return None

    def compute_seconds(self, start: int, end: int) -> float:
        return (end - start) / 1e9

    def make_stream(self) -> None:
        return None

    def use_stream(self, stream: Any) -> AbstractContextManager[None]:
        return nullcontext()

    def delay_stream(self, stream: Any, mark: Any) -> None:
        return None

    def keep_for(self, tensor: torch.Tensor, stream: Any) -> None:
        return None

    def allocate_host(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype)

    def submit_copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        target.copy_(source)

    def read_memory(self) -> DeviceMemory | None:
        return None

    def read_free_memory(self) -> int | None:
        return get_available_bytes()

    def reset_peak_memory(self) -> None:
        raise TesseraError("the CPU's allocator does not count the memory in use")

    def read_driver(self) -> DriverReading:
        return DriverReading()

    def flush_cache(self) -> None:
        flush_caches()
