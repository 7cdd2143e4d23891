"""Synthetic runs with plausible values, built anew for every test."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tessera.measure.samples import Samples
from tessera.report.runs import RunView
from tessera.results.record import Case, Metric, Record

HOSTILE_TEXT = "</script><script>alert(1)</script><b>&amp;\u2028'\"`"
ENVIRONMENT = {
    "cpu": "AMD EPYC 9B14",
    "cores": 2,
    "memory_gb": 16,
    "system": "Linux 6.1.0",
    "kind": "virtual machine",
    "python": "3.11.9",
    "libraries": {"torch": "2.13.0", "numpy": "2.3.1"},
    "threads": 1,
    "pinned_to": 1,
    "governor": "unknown",
    "allocator": "steady",
    "simd": ["avx2", "avx512f"],
    "fingerprint": "3f9ab2c41d77",
}
REASONS = {
    "failed": "RuntimeError: shape '[2, 3]' is invalid for input of size 7",
    "refused": "refused: stride 3 does not divide the tile; use a tile of 12 or no stride",
    "timed_out": "no end within 30 s; the last output was `rank 1 waits`",
}


def make_samples(median: float, count: int = 40, spread: float = 0.02) -> Samples:
    """Make samples around a median, skewed to the right as on a shared machine."""
    values = tuple(median * (1 + abs(random.gauss(0, spread)) + spread * random.expovariate(3)) for _ in range(count))
    switches = tuple(int(random.random() < spread) for _ in values)
    return Samples(
        values=values,
        cpu=tuple(v * 0.98 for v in values),
        switches=switches,
        steal=(0.0,) * count,
        stopped_by="target" if spread < 0.1 else "budget",
    )


def make_record(
    name: str = "add",
    *,
    feature: str = "ops",
    median: float = 1e-3,
    spread: float = 0.02,
    launches: int = 1,
    count: int = 40,
    predicted: float | None = None,
    **params: object,
) -> Record:
    """Make the record of a successful case, with random samples around a median in seconds."""
    samples = tuple(make_samples(median, count, spread) for _ in range(launches))
    middle = sorted(v for s in samples for v in s.values)[len(samples) * count // 2]
    return Record(
        case=Case(feature=feature, name=name, params=params),
        launches=samples,
        metrics={"time": Metric(middle, "s", "lower"), "rate": Metric(2e6 / middle, "FLOP/s", "higher")},
        predicted={} if predicted is None else {"time": Metric(predicted, "s", "lower")},
        environment=ENVIRONMENT,
        started="2026-03-01T12:00:00+00:00",
        seconds=1.0 + random.random(),
    )


def make_broken_record(
    status: str, name: str = "conv2d", *, feature: str = "ops", reason: str = "", **params: object
) -> Record:
    """Make the record of a refused, failed or timed-out case, without measurements."""
    case = Case(feature=feature, name=name, params=params)
    return Record(case=case, status=status, reason=reason or REASONS[status], environment=ENVIRONMENT, seconds=0.4)


def make_run_view(name: str, records: Sequence[Record]) -> RunView:
    return RunView(name=name, created="2026-03-01 12:00", command=f"tessera suite quick --name {name}", records=records)


def make_plausible_run(name: str = "nightly", scale: float = 1.0, launches: int = 1) -> RunView:
    """Make a run of several features, with a few cases that are noisy, refused, failed or timed out."""
    records = [
        make_record(
            op,
            median=base * size**1.5 * (scale if op == "conv2d" else 1),
            launches=launches,
            predicted=base * size**1.5 * random.uniform(0.6, 1.4),
            dtype=dtype,
            size=size,
        )
        for op, base in (("add", 2e-9), ("matmul", 4e-8), ("conv2d", 9e-8))
        for size in (8, 64, 256, 1024)
        for dtype in ("float32", "bfloat16")
    ]
    records += [
        make_record(
            "resnet50",
            feature="inference",
            median=0.05 * batch**0.8 / scale,
            launches=launches,
            batch=batch,
            engine=engine,
        )
        for batch in (1, 4, 8)
        for engine in ("torch", "compiled")
    ]
    records += [
        make_record("relu", median=3e-4, spread=0.4, count=12, dtype="float32", size=512),
        make_record("exchange", feature="halo", median=2e-4, spread=0.3, count=15, ranks=4),
        make_record("exchange", feature="halo", median=1e-4, ranks=2),
        make_broken_record("failed", dtype="float16", size=64),
        make_broken_record("refused", feature="halo", name="exchange", ranks=3),
        make_broken_record("timed_out", feature="inference", name="resnet152", batch=64),
    ]
    return make_run_view(name, records)


def make_long_run(count: int, features: Sequence[str] = ("ops", "halo", "phases", "inference")) -> RunView:
    """Make a run of `count` records of several features."""
    names = ("add", "mul", "matmul", "conv2d", "relu", "softmax", "layer_norm", "max_pool2d")
    return make_run_view(
        "large",
        [
            make_record(
                names[n % len(names)],
                feature=features[n % len(features)],
                median=10 ** random.uniform(-6, -1),
                count=20,
                n=n,
                dtype=random.choice(["float32", "bfloat16"]),
            )
            for n in range(count)
        ],
    )
