"""The figures of a case: what its passes came to, what the machine was expected to take, what has to be said."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tessera.machine.hosts import load_host
from tessera.measure.environment import host_fingerprint
from tessera.phased.bench.prediction import Work, expected
from tessera.phased.bench.storage import in_memory
from tessera.phased.bench.workload import Workload
from tessera.phased.choices import HOLD_ALL
from tessera.phased.host import LINKS
from tessera.phased.model import PhasedModel
from tessera.phased.profile.pass_profile import PassProfile
from tessera.results.record import Case, Metric


def metrics(profile: PassProfile, model: PhasedModel, workload: Workload, took: float) -> dict[str, Metric]:
    """Rates, the ideal and how near to it, bytes and memory; `took` is the time of a step."""
    moved, flops = sum(part.bytes for part in profile.parts), sum(part.flops for part in profile.parts)
    load, compute = sum(part.load for part in profile.parts), sum(part.compute for part in profile.parts)
    found = {
        "items": Metric(workload.items / took, "items/s", "higher"),
        "gflops": Metric(flops / took / 1e9, "GFLOP/s", "higher"),
        "flops": Metric(flops, "FLOP"),
        "phases": Metric(len(profile.parts)),
        "compute": Metric(compute, "s", "lower"),
        "ideal": Metric(profile.ideal, "s", "lower"),
        "efficiency": Metric(profile.ideal / took, "", "higher"),
        "working_memory": Metric(model.working_bytes, "B", "lower"),
        "weights": Metric(model.weight_bytes, "B"),
    }
    if moved:
        found["bytes"] = Metric(moved, "B")
        found["flops_per_byte"] = Metric(flops / moved, "FLOP/B")
        found["load"] = Metric(load, "s", "lower")
    if load:
        found["bandwidth"] = Metric(moved / load / 1e9, "GB/s", "higher")
    if profile.hidden is not None:
        found["hidden"] = Metric(profile.hidden, "", "higher")
    return found


def predictions(model: PhasedModel, workload: Workload, case: Case, seen: Mapping[str, Any]) -> dict[str, Metric]:
    """By the names of the record's figures; nothing where this host is not calibrated, or has no figure for it."""
    host, params = load_host(host_fingerprint(seen)), case.params
    if host is None:
        return {}
    work = [
        Work(
            bytes=0 if phase.resident else phase.bytes,
            flops=(phase.flops or 0) * workload.batches,
            read=phase.working_bytes * workload.batches,
        )
        for phase in model.phases
    ]
    found = expected(
        host,
        work,
        schedule=model.schedule,
        dtype=str(workload.computed).removeprefix("torch."),
        link=LINKS.get((str(params.get("store", "disk")), bool(params.get("cold")))),
        devices=model.devices,
        threads=int(params.get("threads", 1)),
        batches=workload.batches,
    )
    if found is None:
        return {}
    times = {"time": found.time, "compute": found.compute} | ({"load": found.load} if found.load else {})
    return {name: Metric(value, "s", "lower") for name, value in times.items()}


def notes(model: PhasedModel, path: Path, case: Case) -> list[str]:
    """What a reader of the figures has to know."""
    found = []
    if "computed" in model.arithmetic:
        found.append(f"arithmetic: {model.arithmetic}")
    stay = sum(phase.resident for phase in model.phases)
    if stay and model.schedule not in HOLD_ALL:
        found.append(f"{stay} of {len(model.phases)} phases stay in memory: the budget has room for them")
    if model.scratch_bytes:
        found.append(f"activations beyond {case.params['activations']} went through a scratch file")
    if case.params.get("store") == "disk" and in_memory(path):
        found.append("the weights lie on a file system in memory, not on a disk: set TMPDIR to one that is on a disk")
    return found
