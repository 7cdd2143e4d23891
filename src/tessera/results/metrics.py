"""Metrics: the named values of a record, each declared once.

A `MetricSpec` declares the unit of a metric, which direction is better, its heading in tables, how it is printed and
how the values of several launches are merged. Benchmarks make their metrics by name (`make_metrics`); merging,
tables, pages, export and history look the specification up. A metric without a specification (of an older
release, or of a user's benchmark) is printed by its unit and merged by the median.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tessera.measure.samples import Samples

Direction = Literal["lower", "higher", ""]
# "unit" scales to a readable unit (12.3 µs, 1.50 MiB, 3.40 GFLOP/s); "bare" omits the unit, which is in the heading;
# fractions are printed in per cent, errors as 1.0e-07.
MetricFormat = Literal["unit", "bare", "percent", "whole percent", "count", "error", "correlation", "ratio"]
MergeMethod = Literal["median", "min"]

FLOOR_METRIC = "floor"  # the 5 % quantile of a launch; for several launches, the lowest of their quantiles


@dataclass(frozen=True, slots=True)
class Metric:
    """One named value of a record. `direction` says whether lower or higher is better; empty if neither is."""

    value: float
    unit: str = ""
    direction: Direction = ""


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """The declaration of one metric; see the module's docstring.

    `feature` is set if the declaration applies to one feature only. `part_of` is set for fractions (see `Share`): it
    names the metric that is 100 %, which may be below the noise. The values of `additive` metrics add up over calls: n
    calls have n times the value. A value above `maximum` is not meaningful and is printed as `>maximum`.
    """

    name: str
    unit: str = ""
    direction: Direction = ""
    heading: str = ""
    format: MetricFormat = "unit"
    merge: MergeMethod = "median"
    feature: str = ""
    part_of: str = ""
    additive: bool = False
    maximum: float | None = None

    @property
    def title(self) -> str:
        """The heading of the metric's column."""
        return self.heading or self.name.replace("_", " ")


@dataclass(frozen=True, slots=True)
class Share:
    """A fraction of another metric, with the bounds of its confidence interval if they are known.

    The fraction is resolved if its interval is narrower than 100 %: a wider interval is compatible with both 0 % and
    100 %. Unresolved fractions occur if the other metric is below the noise, e.g. an exchange of microseconds beside a
    convolution of milliseconds. Without an interval, only a value between -100 % and 100 % counts as resolved.
    """

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def margin(self) -> float | None:
        """Half the width of the interval."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2

    @property
    def resolved(self) -> bool:
        """Whether the interval is narrow enough to be meaningful; see the class."""
        return abs(self.value) <= 1 if self.margin is None else 2 * self.margin < 1


def read_share(metrics: Mapping[str, Metric], name: str) -> Share | None:
    """Return a fraction from a record's metrics, with bounds `<name>_low` and `<name>_high`; None if missing."""
    if name not in metrics:
        return None
    low, high = (metrics[key].value if (key := f"{name}_{end}") in metrics else None for end in ("low", "high"))
    return Share(metrics[name].value, low, high)


def _declare_metrics(
    names: str, unit: str = "", direction: Direction = "", format: MetricFormat = "unit", *, additive: bool = False
) -> list[MetricSpec]:
    """Declare several metrics that differ only in their names; `names` is separated by spaces."""
    return [MetricSpec(name, unit, direction, format=format, additive=additive) for name in names.split()]


_METRIC_SPECS: tuple[MetricSpec, ...] = (
    # metrics of every timed case
    *_declare_metrics("time p25 p90 p99 cpu_time", "s", "lower", additive=True),
    MetricSpec(FLOOR_METRIC, "s", "lower", merge="min", additive=True),
    MetricSpec("mad", "s", "lower"),
    MetricSpec("page_faults", "1/call", "lower", additive=True),
    MetricSpec("disturbed", "", "lower", format="percent"),
    # work and rates of several features
    MetricSpec("gflops", "GFLOP/s", "higher", "compute rate"),
    MetricSpec("bandwidth", "GB/s", "higher"),
    MetricSpec("efficiency", "", "higher", format="percent"),
    *_declare_metrics("efficiency_low efficiency_high", format="percent"),
    MetricSpec("hidden", "", "higher", format="percent"),
    *_declare_metrics("hidden_low hidden_high", format="percent"),
    MetricSpec("bytes", "B"),
    MetricSpec("peak_memory", "B", "lower"),
    # operators
    MetricSpec("allocated", "B", "lower", additive=True),
    *_declare_metrics("peak_allocated peak_resident", "B", "lower"),
    MetricSpec("work", "FLOP", additive=True),  # or in bytes, if a call moves more bytes than it computes FLOPs
    MetricSpec("roofline", "", "higher", format="percent", maximum=1.0),
    MetricSpec("launch_overhead", "s", "lower", additive=True),  # host time per call on an accelerator
    *_declare_metrics("unfused kept", "s", "lower"),
    MetricSpec("gain", "", "higher"),
    *_declare_metrics("gain_low gain_high"),
    MetricSpec("allocator_share", "", "", "by allocator", "percent"),
    # A/B comparisons
    MetricSpec("ratio", "", "lower", "B / A", "ratio"),
    *_declare_metrics("low high", format="ratio"),
    MetricSpec("time_a", "s", "lower", "A"),
    MetricSpec("time_b", "s", "lower", "B"),
    MetricSpec("smallest", "", "lower", "smallest detectable", "percent"),
    # halo exchange
    *_declare_metrics("exchange convolution sequential uncut forward copy per_neighbour", "s", "lower"),
    MetricSpec("moved", "B", feature="halo"),
    MetricSpec("hidden", "", "higher", format="percent", feature="halo", part_of="exchange"),
    MetricSpec("neighbours", format="count"),
    *_declare_metrics(
        "error_pixels error_output error_input_gradient error_weight_gradient error_bias_gradient",
        direction="lower",
        format="error",
    ),
    MetricSpec("tolerance", "", "", "allowed", "error"),
    MetricSpec("failed_ranks", "", "lower", format="count"),
    # convolutions on a core grid
    MetricSpec("pcc", "", "higher", "PCC", "correlation"),
    MetricSpec("max_error", "", "lower", format="error"),
    MetricSpec("wrong", "", "lower", format="count"),
    MetricSpec("high_water", "B", "lower", "peak memory of a core"),
    *_declare_metrics("moved local remote multicast global", "B", "lower"),
    *_declare_metrics("chip_time resharding greedy", "s", "lower"),
    MetricSpec("images_per_second", "images/s", "higher"),
    # phased execution
    MetricSpec("items", "items/s", "higher", "rate"),
    MetricSpec("flops", "FLOP", "", "FLOPs"),
    MetricSpec("phases", format="count"),
    MetricSpec("load", "s", "lower", "I/O"),
    *_declare_metrics("compute ideal", "s", "lower"),
    MetricSpec("working_memory", "B", "lower"),
    MetricSpec("weights", "B"),
    MetricSpec("flops_per_byte", "FLOP/B", "", "FLOPs / byte"),
    MetricSpec("error", "", "lower", format="error"),
    # inference
    *_declare_metrics("throughput achieved capacity", "images/s", "higher"),
    *_declare_metrics("latency_min latency_mean latency_p50 latency_p90 latency_p99 latency_max", "s", "lower"),
    MetricSpec("max_latency", "s"),
    MetricSpec("held", "", "higher", format="count"),
    MetricSpec("cpu_utilisation", "", "higher", "cores busy", "percent"),
    MetricSpec("peak_fraction", "", "higher", "of peak", "percent"),
    MetricSpec("energy_per_image", "J", "lower"),
    MetricSpec("device_energy_per_image", "J", "lower"),
    MetricSpec("peak_device_memory", "B", "lower"),
    MetricSpec("first_batch", "s", "lower"),
    MetricSpec("top1_agreement", "", "higher", "top-1", "percent"),
    MetricSpec("output_error", "", "lower", format="error"),
    *_declare_metrics("operators between", "s", "lower"),
)
_SPEC_BY_NAME: dict[tuple[str, str], MetricSpec] = {(spec.feature, spec.name): spec for spec in _METRIC_SPECS}
# Families of metrics: a fixed prefix followed by any word, such as the name of a step of opening a model.
_METRIC_FAMILIES: tuple[MetricSpec, ...] = (
    MetricSpec("first_batch_", "s", "lower"),
    MetricSpec("error_", "", "lower", format="error"),
)

_MERGE_FUNCTIONS: dict[MergeMethod, Callable[[Sequence[float]], float]] = {"median": statistics.median, "min": min}


def find_spec(name: str, feature: str = "") -> MetricSpec | None:
    """Return the declaration of a metric: for its feature, for all features, or for its family; None if undeclared."""
    spec = _SPEC_BY_NAME.get((feature, name)) or _SPEC_BY_NAME.get(("", name))
    return spec or next((family for family in _METRIC_FAMILIES if name.startswith(family.name)), None)


def get_spec(name: str, feature: str = "") -> MetricSpec:
    """Return the declaration of a metric, or a default declaration for an undeclared name."""
    spec = find_spec(name, feature)
    return spec if spec is not None and spec.name == name else _make_undeclared_spec(spec, name)


def _make_undeclared_spec(family: MetricSpec | None, name: str) -> MetricSpec:
    """Return the specification of a name without its own declaration: that of its family, or a default."""
    return MetricSpec(name) if family is None else MetricSpec(name, family.unit, family.direction, format=family.format)


def make_metrics(values: Mapping[str, float], feature: str = "") -> dict[str, Metric]:
    """Return declared metrics by name, with the unit and direction of their declarations.

    >>> make_metrics({"throughput": 25.0})
    {'throughput': Metric(value=25.0, unit='images/s', direction='higher')}
    """
    metrics = {}
    for name, value in values.items():
        spec = find_spec(name, feature)
        assert spec is not None, f"metric {name!r} is not declared in tessera.results.metrics"
        metrics[name] = Metric(value, spec.unit, spec.direction)
    return metrics


def merge_metrics(launches: Iterable[Mapping[str, Metric]], feature: str = "") -> dict[str, Metric]:
    """Merge the metrics of several launches of one case as declared; only metrics of the first launch are kept."""
    per_launch = list(launches)
    merged = {}
    for name, metric in per_launch[0].items():
        merge = _MERGE_FUNCTIONS[get_spec(name, feature).merge]
        value = merge([metrics[name].value for metrics in per_launch if name in metrics])
        merged[name] = Metric(value, metric.unit, metric.direction)
    return merged


def make_time_metrics(samples: Samples) -> dict[str, Metric]:
    """Return median, quantiles, CPU time and page faults of one launch."""
    from tessera.measure.statistics import summarize  # lazy: imports NumPy, which writing to a store does not need

    wall = summarize(samples.values)
    values = {
        "time": wall.median,
        FLOOR_METRIC: wall.p5,
        "p25": wall.p25,
        "p90": wall.p90,
        "p99": wall.p99,
        "mad": wall.mad,
        "page_faults": samples.faults_per_call,
        "disturbed": samples.disturbed,
    }
    if samples.cpu:
        values["cpu_time"] = summarize(samples.cpu).median
    return make_metrics(values)
