"""The prediction of a halo case from the calibration of this machine, recorded with the measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tessera.launch.job import get_current_job
from tessera.machine.catalogue import load_host
from tessera.machine.machine import Link, Machine
from tessera.measure.environment import compute_host_fingerprint
from tessera.results.metrics import Metric, make_metrics
from tessera.results.record import Case
from tessera.spatial.cost import predict_convolution, predict_exchange
from tessera.spatial.problem import ExchangeVolume, HaloProblem

if TYPE_CHECKING:
    from tessera.transport.transport import TransportTraits


def predict_case(
    case: Case, problem: HaloProblem, transport: TransportTraits, environment: Mapping[str, Any]
) -> dict[str, Metric]:
    """Return predicted metrics by name; empty if the machine was not calibrated for them.

    Backward passes and several convolutions in a row are not predicted.
    """
    host = load_host(compute_host_fingerprint(environment))
    if host is None or case.params.get("backward") or case.params.get("fused_layers", 1) > 1:
        return {}
    machine, job = get_machine_with_link(host, transport, problem.parts), get_current_job()
    local_ranks = job.local_size if job is not None else problem.parts
    if machine is None or (local_ranks < problem.parts and "network" not in machine.links):
        return {}
    predicted: dict[str, float] = {}
    if case.name == "exchange":
        predicted["time"] = predict_exchange(problem.plan(), problem.pixel_bytes, machine, per_machine=local_ranks)
        if "copy" in host.links:
            copied = ExchangeVolume.of(problem).received * problem.parts
            predicted["copy"] = copied / host.get_bandwidth("copy", workers=problem.parts)
    elif problem.dtype in machine.flops:
        expected = predict_convolution(
            problem.plan(),
            machine,
            in_channels=problem.in_channels,
            out_channels=problem.out_channels,
            dtype=problem.dtype,
            per_machine=local_ranks,
        )
        predicted["time"] = expected.sequential if case.params["overlap"] == "none" else expected.overlapped
        predicted |= {"exchange": expected.exchange, "convolution": expected.compute, "sequential": expected.sequential}
    return make_metrics(predicted)


def get_machine_with_link(host: Machine, transport: TransportTraits, ranks: int) -> Machine | None:
    """Return the machine with the link that a transport provides; None if that link was not calibrated.

    A calibration measures MPI messages if MPI is installed, and gloo messages otherwise. A transport that copies from
    the peer's memory moves bytes at the bandwidth of copies, and signals with two short messages.
    """
    if "link" not in host.links or (transport.messages == "gloo" and find_spec("mpi4py") is not None):
        return None
    if not transport.copies_from_peer:
        return host
    if "copy" not in host.links:
        return None
    link = Link(
        latency=2 * host.get_link("link").latency, bandwidth=(host.get_bandwidth("copy", workers=ranks) / ranks,)
    )
    return replace(host, links={**host.links, "link": link})
