"""The exchange alone: how long it takes until every rank has its borders and may write its own again."""

from __future__ import annotations

import torch

from tessera.launch.worker import Worker
from tessera.measure.sampler import Fn
from tessera.measure.samples import Sampling
from tessera.results.record import Case, Metric
from tessera.spatial.bench.figures import Figures, dtype_of, median, seconds
from tessera.spatial.bench.layout import chosen_layout
from tessera.spatial.bench.problem import Borders, Problem, ways
from tessera.spatial.bench.rounds import sample_rounds
from tessera.transport.exchange import Exchange
from tessera.transport.transport import Transport


def measure_exchange(worker: Worker, case: Case, problem: Problem, transport: Transport, sampling: Sampling) -> Figures:
    """One exchange, with its adjoint if the case asks for backward; beside it a plain copy of the same bytes."""
    backward, borders = bool(case.params.get("backward")), Borders.of(problem)

    def calls(channels_last: bool) -> dict[str, Fn]:
        return exchange_calls(random_exchange(problem, transport, channels_last=channels_last), backward=backward)

    channels_last, notes = chosen_layout(
        str(case.params["layout"]), lambda last: calls(last)["exchange"], sampling, worker
    )
    functions = calls(channels_last)
    if borders.received:
        source, target = (torch.zeros(borders.received, dtype=torch.uint8) for _ in range(2))
        functions["copy"] = lambda: target.copy_(source)
    found = sample_rounds(functions, sampling, worker)
    took = median(found["exchange"])
    metrics: dict[str, Metric] = {name: seconds(found[name]) for name in ("forward", "copy") if name in found}
    metrics |= {
        "bytes": Metric(borders.received, "B"),
        "moved": Metric(borders.total, "B"),
        "neighbours": Metric(borders.neighbours),
    }
    if borders.received:
        metrics["bandwidth"] = Metric(ways(case.params) * borders.received / took / 1e9, "GB/s", "higher")
        metrics["per_neighbour"] = Metric(took / borders.neighbours, "s", "lower")
    return Figures(samples=found["exchange"], metrics=metrics, channels_last=channels_last, notes=notes)


def random_exchange(problem: Problem, transport: Transport, *, channels_last: bool) -> Exchange:
    """The exchange of a problem, with random pixels in this rank's tile."""
    exchange = Exchange(
        transport,
        problem.plan(),
        channels=problem.in_channels,
        dtype=dtype_of(problem.dtype),
        channels_last=channels_last,
    )
    exchange.home.copy_(torch.randn(exchange.home.shape))
    return exchange


def exchange_calls(exchange: Exchange, *, backward: bool) -> dict[str, Fn]:
    """What is timed: the exchange as a whole, up to the point where its memory may be written again."""

    def forward() -> None:
        exchange.start()
        exchange.finish()
        exchange.settle()

    if not backward:
        return {"exchange": forward}
    exchange.start()
    grad = torch.randn(exchange.finish().shape).to(exchange.dtype)

    def both() -> None:
        forward()
        exchange.start_adjoint(grad)
        exchange.finish_adjoint()

    return {"exchange": both, "forward": forward}
