"""Synthetic operator records with plausible values, for tests of tables and report pages."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tessera.measure.samples import Samples
from tessera.operators.catalogue import OPERATORS
from tessera.report.runs import RunView
from tessera.results.record import Case, Metric, Record

ENVIRONMENT = {"cpu": "AMD EPYC 9B14", "cores": 2, "fingerprint": "3f9ab2c41d77", "libraries": {"torch": "2.13.0"}}
WORK = {"small": 5e4, "medium": 1.2e7, "large": 2e8}


def make_operator_record(
    name: str,
    *,
    seconds: float,
    work: float | None = None,
    unit: str = "B",
    launches: int = 1,
    spread: float = 0.01,
    share: float | None = 0.5,
    metrics: dict[str, Metric] | None = None,
    **params: object,
) -> Record:
    """Return a record of one case with random samples about `seconds`; `spread` is their relative deviation."""
    taken = tuple(
        Samples(values=tuple(level * random.gauss(1, spread) for _ in range(20)))
        for level in (seconds * random.gauss(1, spread / 2) for _ in range(launches))
    )
    actual = {"time": Metric(seconds, "s", "lower"), "bandwidth": Metric(1e-9 / seconds, "GB/s", "higher")}
    if work is not None:
        actual["work"] = Metric(work, unit)
    if share is not None:
        actual["roofline"] = Metric(share, "", "higher")
    return Record(
        case=Case(feature="ops", name=name, params=params),
        launches=taken,
        metrics=actual | (metrics or {}),
        predicted={} if share is None else {"time": Metric(share * seconds, "s", "lower")},
        environment=ENVIRONMENT,
        seconds=1.0,
    )


def make_fused_record(name: str, *, seconds: float, gain: float, kept: float, **params: object) -> Record:
    """Return a record of a fused operator with speed-up `gain` over its steps.

    `kept` is the speed-up of the steps themselves when they reuse their buffers.
    """
    figures = {
        "unfused": Metric(gain * seconds, "s", "lower"),
        "kept": Metric(gain * seconds / kept, "s", "lower"),
        "gain": Metric(gain, "", "higher"),
        "gain_low": Metric(0.97 * gain),
        "gain_high": Metric(1.03 * gain),
    }
    if gain > 1.05:
        figures["allocator_share"] = Metric(0.3)
    return make_operator_record(name, seconds=seconds, share=None, metrics=figures, **params)


def make_operator_records(
    names: Sequence[str],
    *,
    backends: Sequence[str] = ("torch",),
    sizes: Sequence[str] = ("small", "medium", "large"),
    passes: Sequence[str] = ("forward", "backward"),
    scale: float = 1.0,
    launches: int = 1,
) -> list[Record]:
    """Return records of all operators, backends, sizes and passes; every operator has a random overhead and rate."""
    actual = []
    for name in names:
        dice = random.Random(name)
        overhead, rate = dice.uniform(1e-6, 2e-5), 10 ** dice.uniform(9, 10.3)
        unit = dice.choice(["B", "FLOP"])
        for place, backend in enumerate(backends):
            for which in passes:
                for size in sizes:
                    seconds = scale * (overhead * (1 + place) + WORK[size] / rate * dice.uniform(0.5, 1.5))
                    actual.append(
                        make_operator_record(
                            name,
                            seconds=seconds * random.gauss(1, 0.01),
                            work=WORK[size],
                            unit=unit,
                            launches=launches,
                            share=min(1.1, WORK[size] / 2e10 / seconds),
                            backend=backend,
                            size=size,
                            dtype="float32",
                            seed=0,
                            **{"pass": which},
                        )
                    )
    return actual


def list_operator_names(count: int) -> list[str]:
    """Return `count` operator names: names of the catalogue, then invented names."""
    own = list(OPERATORS)[:count]
    return own + [f"invented_{number}" for number in range(count - len(own))]


def make_run_view(name: str, records: Sequence[Record], created: str = "2026-03-01T12:00:00+00:00") -> RunView:
    return RunView(name=name, created=created, command="tessera ops --all", records=records)


def make_full_run(name: str = "nightly", count: int = 400) -> RunView:
    """Return a run with four cases of each of `count` operators, and 25 fused operators."""
    fused = [
        make_fused_record(
            f"fused_{number}",
            seconds=1e-4,
            gain=random.uniform(0.9, 3.0),
            kept=random.uniform(0.98, 1.3),
            size="medium",
            fusion="compile",
            dtype="float32",
            backend="torch",
            seed=0,
            **{"pass": "forward"},
        )
        for number in range(25)
    ]
    return make_run_view(name, [*make_operator_records(list_operator_names(count)), *fused])


def make_nights(count: int, operators: Sequence[str], slower: str, since: int) -> list[RunView]:
    """Return one run per night; the operator `slower` takes 25 % more time from night number `since` on."""
    actual = []
    for night in range(count):
        records = [
            record
            for name in operators
            for record in make_operator_records(
                [name], scale=1.25 if name == slower and night >= since else 1.0, sizes=("small", "medium")
            )
        ]
        actual.append(make_run_view(f"night-{night:02}", records, f"2026-03-{night + 1:02}T03:00:00+00:00"))
    return actual
