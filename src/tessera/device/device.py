"""The interface of a device."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

    from tessera.device.driver import DriverReading


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceDescription:
    """A device as records hold it: its name in torch, its model, its capability (such as "9.0") and its memory."""

    name: str
    model: str
    capability: str = ""
    memory_bytes: int | None = None

    @property
    def label(self) -> str:
        """Name and model, which decide whether records are comparable."""
        return f"{self.name} {self.model}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """Bytes that tensors occupy on a device: now, and at most since the peak was reset."""

    current: int
    peak: int


class ComputeDevice(Protocol):
    """A device that computes. Work is submitted to the current stream and may complete later than the call returns.

    A time mark is a point in the work of a stream: an event of the device. On the CPU it is the time of the call.
    """

    @property
    def name(self) -> str:
        """Name of the device in torch, with its number: `cpu`, `cuda:0`."""
        ...

    @property
    def torch_device(self) -> torch.device:
        """The device for torch's functions."""
        ...

    @property
    def asynchronous(self) -> bool:
        """Whether calls return before their work is complete."""
        ...

    def describe(self) -> DeviceDescription:
        """Return the model of the device, its capability and its memory."""
        ...

    def supports_dtype(self, dtype: torch.dtype) -> bool:
        """Return whether tensors of a dtype can be created on the device."""
        ...

    def synchronize(self) -> None:
        """Wait until all work on all streams of the device is complete."""
        ...

    def mark_time(self, stream: Any = None) -> Any:
        """Place a time mark behind the work submitted to a stream so far; None is the current stream."""
        ...

    def wait_for(self, mark: Any) -> None:
        """Wait on the host until the work before a time mark is complete."""
        ...

    def compute_seconds(self, start: Any, end: Any) -> float:
        """Return the time between two marks in seconds; their work must be complete."""
        ...

    def make_stream(self) -> Any:
        """Return a new stream, whose work is ordered with other streams by marks only."""
        ...

    def use_stream(self, stream: Any) -> AbstractContextManager[Any]:
        """Return a context manager in which `stream` is the current stream."""
        ...

    def delay_stream(self, stream: Any, mark: Any) -> None:
        """Let work submitted to a stream from now on start after a mark; None is the current stream."""
        ...

    def keep_for(self, tensor: torch.Tensor, stream: Any) -> None:
        """Do not reuse the memory of a freed tensor before the work of another stream on it is complete."""
        ...

    def allocate_host(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Return host memory that the device copies from and to asynchronously (pinned memory)."""
        ...

    def submit_copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Copy between host and device on the current stream.

        The copy is asynchronous if the host memory is pinned: neither tensor may be changed until a later mark.
        """
        ...

    def read_memory(self) -> DeviceMemory | None:
        """Return the memory that tensors occupy; None if the device does not count it."""
        ...

    def read_free_memory(self) -> int | None:
        """Return the bytes that are free on the device; None if it does not report them."""
        ...

    def reset_peak_memory(self) -> None:
        """Start a new peak of memory from the current value."""
        ...

    def read_driver(self) -> DriverReading:
        """Return clock, temperature, throttling and energy, as far as the driver reports them."""
        ...

    def flush_cache(self) -> None:
        """Overwrite a buffer that is larger than the largest cache; asynchronous like other work."""
        ...
