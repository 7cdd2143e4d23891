"""What an engine is: something that makes a network ready and then runs batches through it, with nothing in between."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from tessera.inference.arrays import Array
    from tessera.inference.deployment.artefacts import Artefacts
    from tessera.inference.deployment.deployed import Deployment

Layout = Literal["NCHW", "NHWC"]
Done = Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What an engine is asked for: a network as it is deployed, for batches of one size, on so many threads.

    Threads run where the process is pinned; no engine moves them elsewhere. With `streams` above 1 an engine computes
    so many batches at a time and divides its threads among them.
    """

    deployment: Deployment
    artefacts: Artefacts
    batch_size: int
    threads: int
    hint: str = "latency"
    streams: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One operator of the graph that an engine really runs: its name and kind there, and its seconds in one batch."""

    name: str
    kind: str
    seconds: float


class Session(Protocol):
    """A network ready to run in an engine.

    `input` gives a batch of images (NCHW in its shape, in `layout` in its memory) as the engine holds it; what it gives
    may be run any number of times while the array lives. `run` is one batch, waited for: the engine's own call and
    nothing else. `outputs` are those of a run as arrays, good until the next run. `compute` is the type of its numbers.
    """

    layout: Layout
    depth: int
    compute: str

    def input(self, batch: Array) -> Any: ...

    def run(self, held: Any) -> Any: ...

    def outputs(self, result: Any) -> tuple[Array, ...]: ...

    def submit(self, held: Any, done: Done) -> None:
        """Start a batch as soon as one of the `depth` places is free; `done` is called when it is computed."""
        ...

    def drain(self) -> None:
        """Wait for all batches that were submitted."""
        ...

    def profile(self, held: Any, repeats: int) -> list[Step]:
        """Seconds of every operator of the graph that the engine runs, as the engine itself measures them."""
        ...

    def close(self) -> None: ...


class Engine(Protocol):
    """A framework at work in this process."""

    def preload(self) -> None:
        """Import what a session needs, without computing: processes are forked after this."""
        ...

    def build(self, request: Request) -> Session:
        """Make a network ready; what the engine cannot do is refused."""
        ...


class OneAtATime(ABC):
    """The part of a session that engines share which compute one batch after the other."""

    depth = 1

    @abstractmethod
    def run(self, held: Any) -> Any: ...

    def submit(self, held: Any, done: Done) -> None:
        self.run(held)
        done()

    def drain(self) -> None:
        """There is nothing under way: every batch was computed when it was submitted."""
        return
