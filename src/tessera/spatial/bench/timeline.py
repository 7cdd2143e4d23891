"""Time lines of the ranks: computation, sending and waiting of a few steps, as a trace for Chrome and Perfetto.

Kernels are timed below the rules of split tensors, so that a span of the lane *compute* is the work of one rank: its
convolutions, norms and copies. The lanes *send*, *wait* and *sum* are the calls of the transport. Time between the
spans is Python's. Timing every kernel takes time itself, so the steps are slower than measured ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from time import perf_counter_ns
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tessera.errors import TesseraError
from tessera.launch.worker import Worker
from tessera.results.record import Case
from tessera.spatial.bench.network import make_network_step
from tessera.spatial.bench.stack import StackSteps
from tessera.spatial.cases import NETWORK
from tessera.spatial.problem import HaloProblem, NetworkProblem
from tessera.spatial.tensor.split_tensor import SplitTensor
from tessera.transport.registry import open_transport
from tessera.transport.transport import Connection, Strip, Transport

WARMUP_STEPS, TRACED_STEPS = 3, 3
LANES = ("step", "compute", "send", "wait", "sum")


class Span(NamedTuple):
    """A span of a lane; times are in nanoseconds of the host's clock, which its processes share."""

    lane: str
    name: str
    start: int
    stop: int


class Timeline:
    """The spans of a rank."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    @contextmanager
    def measure(self, lane: str, name: str) -> Iterator[None]:
        start = perf_counter_ns()
        try:
            yield
        finally:
            self.spans.append(Span(lane, name, start, perf_counter_ns()))


class TimedTransport:
    """A transport whose calls are recorded in a timeline."""

    def __init__(self, transport: Transport, timeline: Timeline) -> None:
        self._transport, self._timeline = transport, timeline
        self.name, self.traits, self.rank, self.size = (
            transport.name,
            transport.traits,
            transport.rank,
            transport.size,
        )
        self.empty, self.free, self.close = transport.empty, transport.free, transport.close

    def connect(self, sends: Sequence[Strip], receives: Sequence[Strip]) -> Connection:
        return _TimedConnection(self._transport.connect(sends, receives), self._timeline)

    def all_reduce(self, values: Tensor) -> None:
        with self._timeline.measure("sum", f"all-reduce of {values.numel()} values"):
            self._transport.all_reduce(values)

    def barrier(self) -> None:
        with self._timeline.measure("wait", "barrier"):
            self._transport.barrier()


class _TimedConnection:
    def __init__(self, connection: Connection, timeline: Timeline) -> None:
        self._connection, self._timeline = connection, timeline
        self.close = connection.close

    def wait_until_sent(self) -> None:
        with self._timeline.measure("wait", "until sent"):
            self._connection.wait_until_sent()

    def start(self) -> None:
        with self._timeline.measure("send", "borders"):
            self._connection.start()

    def finish(self) -> None:
        with self._timeline.measure("wait", "for borders"):
            self._connection.finish()


class _KernelTimer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that records the operators on plain tensors."""

    def __init__(self, timeline: Timeline) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._timeline = timeline

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if SplitTensor in types:
            return NotImplemented  # its rule runs next, and this mode sees the operators of the rule
        with self._timeline.measure("compute", func._overloadpacket.__name__):
            return func(*args, **(kwargs or {}))


def record_timeline(worker: Worker, case: Case) -> list[Span]:
    """Worker function: return the spans of a few steps of a case on this rank."""
    timeline = Timeline()
    with closing(open_transport(str(case.params["transport"]), worker)) as opened:
        transport = TimedTransport(opened, timeline)
        step = _make_step(case, transport)
        for _ in range(WARMUP_STEPS):
            step()
        transport.barrier()
        timeline.spans.clear()
        with _KernelTimer(timeline):
            for number in range(TRACED_STEPS):
                with timeline.measure("step", f"step {number + 1}"):
                    step()
        transport.barrier()
    return timeline.spans


def _make_step(case: Case, transport: Transport) -> Callable[[], object]:
    params = case.params
    torch.manual_seed(0)
    if case.name == NETWORK:
        return make_network_step(NetworkProblem.of(params), transport, backward=bool(params.get("backward")))
    if params["overlap"] == "auto":
        raise TesseraError("--trace does not support --overlap auto", allowed="none, split, recompute")
    steps = StackSteps(
        layers=HaloProblem.of(params).list_layers(int(params.get("fused_layers", 1))),
        transport=transport,
        backward=bool(params.get("backward")),
        fp16_allreduce=bool(params.get("fp16_allreduce")),
        overlap=params["overlap"],
    )
    return steps.make_split(params.get("halo_depth", 1), params["layout"] == "channels_last")


def build_trace(timelines: Sequence[tuple[str, Sequence[Sequence[Span]]]]) -> dict[str, Any]:
    """Return a trace in Chrome's format: a process for each rank of each titled case, a thread for each lane.

    >>> build_trace([("conv", [[Span("wait", "for borders", 5000, 7000)]])])["traceEvents"][-1]
    {'ph': 'X', 'pid': 1, 'tid': 4, 'name': 'for borders', 'ts': 0.0, 'dur': 2.0}
    """
    events: list[dict[str, Any]] = []
    process = 0
    for title, by_rank in timelines:
        begin = min((span.start for spans in by_rank for span in spans), default=0)
        for rank, spans in enumerate(by_rank):
            process += 1
            events.append(_name_event("process_name", process, 0, f"{title}: rank {rank}"))
            for number, lane in enumerate(LANES, 1):
                events.append(_name_event("thread_name", process, number, lane))
            events += [
                {
                    "ph": "X",
                    "pid": process,
                    "tid": LANES.index(span.lane) + 1,
                    "name": span.name,
                    "ts": (span.start - begin) / 1e3,
                    "dur": (span.stop - span.start) / 1e3,
                }
                for span in spans
            ]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _name_event(event: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": event, "pid": process, "tid": thread, "args": {"name": name}}
