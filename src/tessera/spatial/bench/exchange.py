"""The exchange benchmark: the time until every rank has its halo and may overwrite its own borders."""

from __future__ import annotations

import torch

from tessera.launch.worker import Worker
from tessera.measure.sampler import Fn
from tessera.measure.samples import Sampling
from tessera.results.metrics import make_metrics
from tessera.results.record import Case
from tessera.spatial.bench.measurement import HaloMeasurement, choose_layout, get_dtype, get_median
from tessera.spatial.bench.rounds import sample_rounds
from tessera.spatial.problem import ExchangeVolume, HaloProblem, count_directions
from tessera.transport.exchange import Exchange
from tessera.transport.transport import Transport


def measure_exchange(
    worker: Worker, case: Case, problem: HaloProblem, transport: Transport, sampling: Sampling
) -> HaloMeasurement:
    """Measure one exchange, with its adjoint if the case has `backward`, and a plain copy of as many bytes."""
    backward, borders = bool(case.params.get("backward")), ExchangeVolume.of(problem)

    def make_calls(channels_last: bool) -> dict[str, Fn]:
        return make_exchange_calls(
            make_random_exchange(problem, transport, channels_last=channels_last), backward=backward
        )

    channels_last, notes = choose_layout(
        str(case.params["layout"]), lambda last: make_calls(last)["exchange"], sampling, worker, transport.barrier
    )
    functions = make_calls(channels_last)
    if borders.received:
        source, target = (torch.zeros(borders.received, dtype=torch.uint8) for _ in range(2))
        functions["copy"] = lambda: target.copy_(source)
    samples = sample_rounds(functions, sampling, worker, transport.barrier)
    seconds = get_median(samples["exchange"])
    figures: dict[str, float] = {name: get_median(samples[name]) for name in ("forward", "copy") if name in samples}
    figures |= {"bytes": borders.received, "moved": borders.total, "neighbours": borders.neighbours}
    if borders.received:
        figures["bandwidth"] = count_directions(case.params) * borders.received / seconds / 1e9
        figures["per_neighbour"] = seconds / borders.neighbours
    metrics = make_metrics(figures, "halo")
    return HaloMeasurement(samples=samples["exchange"], metrics=metrics, channels_last=channels_last, notes=notes)


def make_random_exchange(problem: HaloProblem, transport: Transport, *, channels_last: bool) -> Exchange:
    """Return the exchange of a problem, with random pixels in this rank's tile."""
    exchange = Exchange(
        transport,
        problem.plan(),
        channels=problem.in_channels,
        dtype=get_dtype(problem.dtype),
        channels_last=channels_last,
    )
    exchange.tile_buffer.copy_(torch.randn(exchange.tile_buffer.shape))
    return exchange


def make_exchange_calls(exchange: Exchange, *, backward: bool) -> dict[str, Fn]:
    """Return the callables to time. Each returns when the buffers of the exchange may be overwritten."""

    def forward() -> None:
        exchange.start()
        exchange.finish()
        exchange.wait_until_sent()

    if not backward:
        return {"exchange": forward}
    exchange.start()
    grad = torch.randn(exchange.finish().shape).to(exchange.dtype)

    def run_both() -> None:
        forward()
        exchange.start_adjoint(grad)
        exchange.finish_adjoint()

    return {"exchange": run_both, "forward": forward}
