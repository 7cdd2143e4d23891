"""What the calibrated machine expects of a halo case, beside what is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from tessera.launch.job import current_job
from tessera.machine.hosts import load_host
from tessera.machine.machine import Link, Machine
from tessera.measure.environment import host_fingerprint
from tessera.results.record import Case, Metric
from tessera.spatial.bench.problem import Borders, Problem
from tessera.spatial.predict import predicted_convolution, predicted_exchange


def predictions(case: Case, problem: Problem, transport: str, seen: Mapping[str, Any]) -> dict[str, Metric]:
    """By the names of the record's figures; nothing where the machine has no figures for it.

    Backward is not predicted.
    """
    host = load_host(host_fingerprint(seen))
    if host is None or case.params.get("backward"):
        return {}
    machine, job = machine_over(host, transport, problem.parts), current_job()
    near = job.local_size if job is not None else problem.parts
    if machine is None or (near < problem.parts and "network" not in machine.links):
        return {}
    found: dict[str, float] = {}
    if case.name == "exchange":
        found["time"] = predicted_exchange(problem.plan(), problem.pixel_bytes, machine, per_machine=near)
        if "copy" in host.links:
            copied = Borders.of(problem).received * problem.parts
            found["copy"] = copied / host.bandwidth("copy", workers=problem.parts)
    elif problem.dtype in machine.flops:
        expected = predicted_convolution(
            problem.plan(),
            machine,
            in_channels=problem.in_channels,
            out_channels=problem.out_channels,
            dtype=problem.dtype,
            per_machine=near,
        )
        found["time"] = expected.apart if case.params["overlap"] == "none" else expected.overlapped
        found |= {"exchange": expected.exchange, "convolution": expected.compute, "sequential": expected.apart}
    return {name: Metric(value, "s", "lower") for name, value in found.items()}


def machine_over(host: Machine, transport: str, ranks: int) -> Machine | None:
    """The machine with the link that a transport makes of it; None where that was not calibrated.

    A calibration measures MPI's messages where there is MPI, and gloo's otherwise. Through shared memory bytes are
    copied once, at the rate of copies, and two short messages say when.
    """
    if "link" not in host.links or (transport == "gloo" and find_spec("mpi4py") is not None):
        return None
    if transport != "shared":
        return host
    if "copy" not in host.links:
        return None
    link = Link(latency=2 * host.link("link").latency, bandwidth=(host.bandwidth("copy", workers=ranks) / ranks,))
    return replace(host, links={**host.links, "link": link})
