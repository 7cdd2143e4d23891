"""Records of phased execution made up for tests, with figures that fit together."""

from __future__ import annotations

import random
from typing import Any

from tessera.measure.samples import Samples
from tessera.phased.cases import cases
from tessera.phased.profile.directory import PROFILE
from tessera.results.record import Metric, Record
from tests.phased.profile.passes import overlapped, sequential

ENVIRONMENT = {"cpu": "AMD EPYC 9B14", "cores": 2, "fingerprint": "3f9ab2c41d77"}
UNITS = {"bytes": "B", "flops": "FLOP", "flops_per_byte": "FLOP/B", "gflops": "GFLOP/s", "items": "items/s"}
UNITS |= {"bandwidth": "GB/s", "working_memory": "B", "weights": "B", "peak_memory": "B"}
SHARES = ("efficiency", "hidden", "error", "phases")


def record(
    *names: str,
    load: float = 2.0,
    compute: float = 2.0,
    moved: float = 1e9,
    flops: float = 1e11,
    predicted: float | None = None,
    **axes: Any,
) -> Record:
    """A case whose phases load and compute so long, all together; `resident` and `sharded` load nothing."""
    (case,) = cases(names or ("chain",), **{axis: [value] for axis, value in axes.items()})
    schedule, count = case.params["schedule"], int(case.params.get("num_layers", 4))
    streams = schedule not in ("resident", "sharded")
    loads, computes = [load / count] * count, [compute / count] * count
    made = sequential if schedule == "sequential" else overlapped
    seen = made(loads if streams else [0.0] * count, computes)
    figures = {
        "time": seen.seconds,
        "items": 3200 / seen.seconds,
        "gflops": flops / seen.seconds / 1e9,
        "flops": flops,
        "phases": count,
        "compute": compute,
        "ideal": seen.ideal,
        "efficiency": seen.efficiency,
        "working_memory": moved / 4,
        "weights": moved,
        "peak_memory": moved / 3,
    }
    if streams:
        figures |= {"bytes": moved, "flops_per_byte": flops / moved, "load": load, "bandwidth": moved / load / 1e9}
        figures["hidden"] = seen.hidden or 0.0
    storage = "in memory" if not streams else "cold disk" if case.params.get("cold") else "warm disk"
    return Record(
        case=case,
        launches=(Samples(values=tuple(seen.seconds * random.gauss(1, 0.01) for _ in range(5))),),
        metrics={
            name: Metric(value, "" if name in SHARES else UNITS.get(name, "s")) for name, value in figures.items()
        },
        predicted={} if predicted is None else {"time": Metric(predicted, "s")},
        environment=ENVIRONMENT,
        conditions={"storage": storage, PROFILE: seen.to_json()},
        seconds=1.0,
    )
