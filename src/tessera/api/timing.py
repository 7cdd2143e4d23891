"""`tessera.time` and `tessera.interleave`: time Python callables with the sampler that all benchmarks use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tessera.measure.interleave import Interleaved, sample_interleaved
from tessera.measure.sampler import sample
from tessera.measure.samples import Samples, Sampling
from tessera.measure.statistics import Estimate, estimate_median
from tessera.tabular import Tabular


@dataclass(frozen=True, slots=True)
class Timing(Tabular):
    """The measured time of one call in seconds. `samples` holds all samples, with CPU time and disturbances."""

    samples: Samples

    @property
    def estimate(self) -> Estimate:
        """The median with its 95 % confidence interval."""
        return estimate_median(self.samples.values)

    @property
    def median(self) -> float:
        return self.estimate.value

    def to_rows(self) -> list[dict[str, Any]]:
        return [self.to_dict()]

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as plain values, in seconds."""
        estimate = self.estimate
        return {
            "median": estimate.value,
            "low": estimate.low,
            "high": estimate.high,
            "samples": len(self.samples.values),
            "loops": self.samples.loops,
            "stopped_by": self.samples.stopped_by,
        }

    def __str__(self) -> str:
        estimate = self.estimate
        scale, unit = next(
            ((s, u) for s, u in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")) if estimate.value >= s), (1e-9, "ns")
        )
        value, low, high = (figure / scale for figure in (estimate.value, estimate.low, estimate.high))
        return f"{value:.4g} {unit} (95 % interval {low:.4g} to {high:.4g}, {len(self.samples.values)} samples)"


def time(
    fn: Callable[[], Any],
    *,
    budget: float | None = None,
    target: float | None = None,
    warmup: int | None = None,
    iterations: int | None = None,
    before: Callable[[], Any] | None = None,
) -> Timing:
    """Time a callable: warm up, then sample until the median is precise to `target`, for at most `budget` seconds.

    `target` is the relative half-width of the median's 95 % confidence interval. `warmup` and `iterations`, if given,
    fix the number of calls instead. `before` is called, untimed, before every sample.

    >>> time(lambda: sum(range(1000)), budget=0.05).median > 0
    True
    """
    options = {"budget": budget, "target": target, "warmup": warmup, "iterations": iterations}
    sampling = Sampling(**{name: value for name, value in options.items() if value is not None})  # type: ignore[arg-type]
    return Timing(sample(fn, sampling, before=before))


def interleave(
    functions: Mapping[str, Callable[[], Any]], *, budget: float = 1.0, target: float = 0.002, seed: int | None = None
) -> Interleaved:
    """Time several callables in random alternation, so that machine noise affects all of them alike.

    Sampling ends when the ratio of each callable to the first is precise to `target` (relative half-width of its
    confidence interval), or after `budget` seconds. `result.ratio("b", "a")` is the time of b over the time of a, with
    its confidence interval.

    >>> result = interleave({"a": lambda: sum(range(500)), "b": lambda: sum(range(2000))}, budget=0.1)
    >>> result.ratio("b", "a").low > 1
    True
    """
    return sample_interleaved(functions, budget=budget, target=target, seed=seed)
