"""Synthetic records of phased execution with consistent metrics."""

from __future__ import annotations

import random
from typing import Any

from tessera.measure.samples import Samples
from tessera.phased.cases import cases
from tessera.phased.profile.pass_profile import PROFILE_KEY
from tessera.results.record import Metric, Record
from tests.phased.profile.synthetic_passes import build_overlapped, build_sequential

ENVIRONMENT = {"cpu": "AMD EPYC 9B14", "cores": 2, "fingerprint": "3f9ab2c41d77"}
UNITS = {"bytes": "B", "flops": "FLOP", "flops_per_byte": "FLOP/B", "gflops": "GFLOP/s", "items": "items/s"}
UNITS |= {"bandwidth": "GB/s", "working_memory": "B", "weights": "B", "peak_memory": "B"}
SHARES = ("efficiency", "hidden", "error", "phases")


def make_phases_record(
    *names: str,
    load: float = 2.0,
    compute: float = 2.0,
    moved: float = 1e9,
    flops: float = 1e11,
    predicted: float | None = None,
    **axes: Any,
) -> Record:
    """Build a record whose phases take these total seconds; schedules without streaming have no load time."""
    (case,) = cases(names or ("chain",), **{axis: [value] for axis, value in axes.items()})
    schedule, count = case.params["schedule"], int(case.params.get("num_layers", 4))
    streams = schedule not in ("resident", "sharded")
    loads, computes = [load / count] * count, [compute / count] * count
    build_pass = build_sequential if schedule == "sequential" else build_overlapped
    profile = build_pass(loads if streams else [0.0] * count, computes)
    figures = {
        "time": profile.seconds,
        "items": 3200 / profile.seconds,
        "gflops": flops / profile.seconds / 1e9,
        "flops": flops,
        "phases": count,
        "compute": compute,
        "ideal": profile.ideal,
        "efficiency": profile.efficiency,
        "working_memory": moved / 4,
        "weights": moved,
        "peak_memory": moved / 3,
    }
    if streams:
        figures |= {"bytes": moved, "flops_per_byte": flops / moved, "load": load, "bandwidth": moved / load / 1e9}
        figures["hidden"] = profile.hidden or 0.0
    storage = "in memory" if not streams else "cold disk" if case.params.get("cold") else "warm disk"
    return Record(
        case=case,
        launches=(Samples(values=tuple(profile.seconds * random.gauss(1, 0.01) for _ in range(5))),),
        metrics={
            name: Metric(value, "" if name in SHARES else UNITS.get(name, "s")) for name, value in figures.items()
        },
        predicted={} if predicted is None else {"time": Metric(predicted, "s")},
        environment=ENVIRONMENT,
        details={"storage": storage, PROFILE_KEY: profile.to_json()},
        seconds=1.0,
    )
