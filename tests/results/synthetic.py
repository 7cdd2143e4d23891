"""Records made up for tests: random ones of every shape, and measured ones with a known truth."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tessera.measure.samples import Samples
from tessera.results.record import Case, Metric, Record

any_float = st.floats(allow_nan=True, allow_infinity=True)
any_text = st.text(max_size=12)
scalar = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | any_float | any_text
plain = st.recursive(
    scalar,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(any_text | st.sampled_from(["$float", "$object"]), inner, max_size=3)
    ),
    max_leaves=8,
)
objects = st.dictionaries(any_text | st.sampled_from(["$float", "$object"]), plain, max_size=4)
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
        notes=tuple(draw(st.lists(any_text, max_size=2))),
        started=draw(any_text),
        seconds=draw(any_float),
    )


def exactly(value: object) -> object:
    """A form in which equal values are equal: NaN too, and -0.0 is not 0.0, and dicts have no order."""
    if isinstance(value, Record):
        value = value.to_json()
    if isinstance(value, dict):
        return {key: exactly(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [exactly(item) for item in value]
    return (type(value).__name__, repr(value))


def launch(level: float, rng: np.random.Generator, *, count: int = 40, rate: bool = False) -> Samples:
    """One launch at a level: a little jitter, and a share of calls that something else held up for long.

    The share differs from launch to launch, as on a shared machine, and the delays have no finite variance.
    """
    slowdown = 1 + np.abs(rng.normal(0, 0.005, count))
    held_up = rng.random(count) < rng.uniform(0, 0.4)
    slowdown[held_up] *= 1 + rng.pareto(1.5, held_up.sum())
    values = level / slowdown if rate else level * slowdown
    return Samples(values=tuple(values.tolist()))


def measured(
    name: str,
    level: float,
    rng: np.random.Generator,
    *,
    launches: int = 5,
    noise: float = 0.01,
    direction: str = "lower",
    **others: object,
) -> Record:
    """A case whose launches scatter around a level by `noise`, lognormally."""
    levels = level * np.exp(rng.normal(0, noise, launches))
    taken = tuple(launch(float(one), rng, rate=direction == "higher") for one in levels)
    given = {"environment": {"fingerprint": "here"}, "direction": direction, **others}
    return Record(case=Case(feature="ops", name=name), launches=taken, **given)  # type: ignore[arg-type]
