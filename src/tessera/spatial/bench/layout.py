"""Which layout in memory is faster here: channels apart, or all channels of a pixel together."""

from __future__ import annotations

from collections.abc import Callable

from tessera.launch.worker import Worker
from tessera.measure.sampler import Fn
from tessera.measure.samples import Sampling
from tessera.measure.statistics import summarize
from tessera.spatial.bench.rounds import sample_rounds

TRIAL = 0.25  # of the case's budget, for both layouts together
TARGET = 0.05


def chosen_layout(
    asked: str, make: Callable[[bool], Fn], sampling: Sampling, worker: Worker
) -> tuple[bool, tuple[str, ...]]:
    """Whether channels come last, and a note on why; `auto` times what `make(channels_last)` gives, on all ranks."""
    if asked != "auto":
        return asked == "channels_last", ()
    calls = {name: make(name == "channels_last") for name in ("contiguous", "channels_last")}
    found = sample_rounds(calls, Sampling(budget=TRIAL * sampling.budget, target=TARGET), worker)
    took = {name: summarize(samples.values).median for name, samples in found.items()}
    faster, slower = sorted(took, key=lambda name: took[name])
    return faster == "channels_last", (f"layout {faster}: takes {took[faster] / took[slower]:.2f}x of {slower}",)
