"""Synthetic records: random records drawn by hypothesis, and records with noise around a known level."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tessera.measure.samples import Samples
from tessera.results.record import Case, Metric, Record

# Hypothesis draws records slowly on a busy machine.
NO_DEADLINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

any_float = st.floats(allow_nan=True, allow_infinity=True)
any_text = st.text(max_size=12)
scalar = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | any_float | any_text
plain = st.recursive(
    scalar,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(any_text | st.sampled_from(["$float", "$object"]), inner, max_size=3)
    ),
    max_leaves=8,
)
objects = st.dictionaries(any_text | st.sampled_from(["$float", "$object"]), plain, max_size=4)
few_objects = st.dictionaries(any_text | st.sampled_from(["$float", "$object"]), plain, max_size=1)
array = st.lists(any_float, max_size=6).map(tuple)
metrics = st.dictionaries(
    any_text, st.builds(Metric, any_float, any_text, st.sampled_from(["lower", "higher", ""])), max_size=3
)


@st.composite
def samples(draw: st.DrawFn) -> Samples:
    return Samples(
        values=draw(array),
        cpu=draw(array),
        switches=draw(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4).map(tuple)),
        steal=draw(array),
        warmups=draw(array),
        loops=draw(st.integers(1, 10**6)),
        faults_per_call=draw(any_float),
        stopped_by=draw(any_text),
        interval=draw(st.none() | any_float),
        ranks=draw(st.lists(array, max_size=3).map(tuple)),
        joined_by=draw(any_text),
    )


@st.composite
def records(draw: st.DrawFn) -> Record:
    status = draw(st.sampled_from(["ok", "failed", "refused", "timed_out"]))
    return Record(
        case=Case(feature=draw(any_text), name=draw(any_text), params=draw(objects)),
        version=draw(any_text),
        status=status,
        reason=draw(any_text) or ("" if status == "ok" else "why"),
        unit=draw(any_text),
        direction=draw(st.sampled_from(["lower", "higher", ""])),
        launches=tuple(draw(st.lists(samples(), max_size=3))),
        metrics=draw(metrics),
        predicted=draw(metrics),
        environment=draw(objects),
        conditions=draw(objects),
        verdict=draw(st.none() | any_text),
        chosen=draw(few_objects),
        details=draw(few_objects),
        notes=tuple(draw(st.lists(any_text, max_size=2))),
        started=draw(any_text),
        seconds=draw(any_float),
    )


def to_exact_form(value: object) -> object:
    """Convert a value for exact comparison: NaN equals NaN, -0.0 differs from 0.0, the order of dicts is ignored."""
    if isinstance(value, Record):
        value = value.to_json()
    if isinstance(value, dict):
        return {key: to_exact_form(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_exact_form(item) for item in value]
    return (type(value).__name__, repr(value))


def make_launch(level: float, rng: np.random.Generator, *, count: int = 40, rate: bool = False) -> Samples:
    """Make the samples of one launch at a level: little jitter, and a fraction of calls with long delays.

    The fraction differs from launch to launch, as on a shared machine, and the delays have no finite variance.
    """
    slowdown = 1 + np.abs(rng.normal(0, 0.005, count))
    held_up = rng.random(count) < rng.uniform(0, 0.4)
    slowdown[held_up] *= 1 + rng.pareto(1.5, held_up.sum())
    values = level / slowdown if rate else level * slowdown
    return Samples(values=tuple(values.tolist()))


def make_measured_record(
    name: str,
    level: float,
    rng: np.random.Generator,
    *,
    launches: int = 5,
    noise: float = 0.01,
    direction: str = "lower",
    **fields: object,
) -> Record:
    """Make a record whose launches vary around a level with lognormal noise of standard deviation `noise`."""
    levels = level * np.exp(rng.normal(0, noise, launches))
    samples = tuple(make_launch(float(launch_level), rng, rate=direction == "higher") for launch_level in levels)
    values = {"environment": {"fingerprint": "here"}, "direction": direction, **fields}
    return Record(case=Case(feature="ops", name=name), launches=samples, **values)  # type: ignore[arg-type]
