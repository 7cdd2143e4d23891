"""The interface of an engine: a function that builds a `Session` from an `EngineRequest`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tessera.device import CPU
from tessera.errors import Refused

if TYPE_CHECKING:
    from tessera.device import ComputeDevice
    from tessera.inference.data.images import Array, Layout
    from tessera.inference.deployment.artefacts import Artefacts
    from tessera.inference.deployment.deployment import Deployment

DoneCallback = Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRequest:
    """A request to build a session: the network, one batch size, and the number of threads.

    Threads run on the cores to which the process is pinned; an engine must not change their affinity. An engine
    computes `streams` batches concurrently and divides its threads among them. `device` is the device of torch
    engines; engines with devices of their own use the name in `device_choice` and the number of the replica.
    """

    deployment: Deployment
    artefacts: Artefacts
    batch_size: int
    threads: int
    device: ComputeDevice
    device_choice: str = CPU
    replica: int = 0
    hint: str = "latency"
    streams: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTime:
    """One node of the graph that an engine runs: its name and kind in that graph, and its seconds per batch."""

    name: str
    kind: str
    seconds: float


class Session(Protocol):
    """A network that is ready to run in an engine.

    `layout` is the memory layout of a batch, `depth` the number of batches that may be in flight, `compute` the dtype
    of the arithmetic, `device` name and model of the accelerator that computes (empty: the CPU).
    """

    layout: Layout
    depth: int
    compute: str
    device: str

    def prepare_input(self, batch: Array) -> Any:
        """Return a batch of images (shape NCHW, memory in `layout`) as the engine's own input tensor.

        The tensor can be passed to `run` any number of times as long as the array `batch` is alive.
        """

    def run(self, inputs: Any) -> Any:
        """Compute one batch and wait until its outputs are in host memory.

        This call is timed, so it contains only the engine's own call.
        """

    def read_outputs(self, result: Any) -> tuple[Array, ...]:
        """Return the outputs of a run as float32 arrays; the next run may overwrite them."""

    def submit(self, inputs: Any, done: DoneCallback) -> None:
        """Wait until fewer than `depth` batches are in flight, start a batch, and call `done` when it is computed."""

    def drain(self) -> None:
        """Wait for all submitted batches."""

    def profile(self, inputs: Any, repeats: int) -> list[OperatorTime]:
        """Return the mean seconds of every operator over `repeats` runs, measured by the engine's own profiler."""

    def close(self) -> None:
        """Free the network."""


class SequentialSession(ABC):
    """Base class of sessions that compute batches sequentially and have no profiler of their own."""

    depth = 1
    device = ""

    @abstractmethod
    def run(self, inputs: Any) -> Any: ...

    def submit(self, inputs: Any, done: DoneCallback) -> None:
        self.run(inputs)
        done()

    def drain(self) -> None:
        """Return immediately, because `submit` returns only after its batch is computed."""
        return

    def profile(self, inputs: Any, repeats: int) -> list[OperatorTime]:
        raise Refused("this engine does not support per-operator profiling", do="omit --by-operator")
