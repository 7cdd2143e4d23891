"""Measure one case in one process: time its steps, compare with plain torch, and profile its phases."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch

from tessera.launch.worker import RunContext
from tessera.measure.environment import describe_environment
from tessera.measure.memory import measure_resident_growth, reset_peak_memory, trim_allocator
from tessera.measure.sampler import sample
from tessera.measure.samples import Samples, Sampling
from tessera.measure.statistics import summarize
from tessera.phased.bench.isolated_times import build_phase_costs, measure_isolated_times
from tessera.phased.bench.metrics import build_metrics, build_notes, build_predictions
from tessera.phased.bench.output_check import check_output
from tessera.phased.bench.workload import Workload, describe_storage, open_model, warm_up
from tessera.phased.choices import SCHEDULES
from tessera.phased.events import Event
from tessera.phased.model import PhasedModel
from tessera.phased.profile.pass_profile import PROFILE_KEY, PassProfile, PhaseCost
from tessera.results.metrics import make_metrics, make_time_metrics
from tessera.results.record import Case, Record

BENCHMARK_VERSION = "1"  # records of different versions are not compared


def run_case(context: RunContext, case: Case, sampling: Sampling) -> Record:
    """Measure one case: time of its steps, isolated times of its phases, memory, and difference from plain torch."""
    # The threads of one device; the worker itself has cores for at least two devices.
    torch.set_num_threads(int(case.params.get("threads", 1)))
    workload = Workload.from_case(case)
    inputs = workload.build_inputs()
    with workload.open_weights_file() as path, ExitStack() as stack:
        opened: list[PhasedModel] = []

        def run_first_step() -> None:
            opened.append(stack.enter_context(open_model(context.worker, case, workload, path)))
            opened[0].run(inputs)

        def open_baseline() -> PhasedModel:
            baseline = next(name for name, traits in SCHEDULES.items() if traits.is_baseline)
            changes: dict[str, Any] = {"schedule": baseline, "devices": 1}
            if opened[0].memory_limit is not None:  # the limit is that of the measured model
                changes |= {"memory_limit": None, "budget": opened[0].budget}
            return open_model(context.worker, case, workload, path, **changes)

        warm_up(case)
        grown = measure_resident_growth(run_first_step)
        model = opened[0]
        check = check_output(workload, model, inputs)
        step = TimedStep(model=model, inputs=inputs)
        samples = sample(step, sampling)
        times = measure_isolated_times(model, inputs, open_baseline)
        trim_allocator()
        reset_peak_memory()  # a memory limit does not apply to the second model
        profile = step.build_typical_profile(samples, build_phase_costs(model, times, workload.batches))
        host = describe_environment()
        metrics = make_time_metrics(samples) | build_metrics(profile, model, workload, summarize(samples.values).median)
        if grown is not None:
            metrics |= make_metrics({"peak_memory": grown})
        if check.error is not None:
            metrics |= make_metrics({"error": check.error})
        return Record(
            case=case,
            version=BENCHMARK_VERSION,
            launches=(samples,),
            metrics=metrics,
            predicted=build_predictions(model, workload, case, host),
            environment=host,
            details={
                "storage": describe_storage(case.params),
                "arithmetic": model.arithmetic,
                **({"encoding_errors": model.encoding_errors} if model.encoding_errors else {}),
                PROFILE_KEY: profile.to_json(),
            },
            notes=(*build_notes(model, path, case, workload), *((check.note,) if check.note else ())),
        )


@dataclass(slots=True, kw_only=True)
class TimedStep:
    """A callable that runs one step and records start, end and events of every pass."""

    model: PhasedModel
    inputs: Sequence[Any]
    passes: list[tuple[float, float, Sequence[Event]]] = field(default_factory=list)

    def __call__(self) -> None:
        begin = time.perf_counter()
        self.model.run(self.inputs)
        self.passes.append((begin, time.perf_counter(), self.model.events))

    def build_typical_profile(self, samples: Samples, phases: Sequence[PhaseCost]) -> PassProfile:
        """Return the profile of the timed pass whose time is closest to the median.

        Before that, one more pass is run, untimed: weights that a pass loads ahead for the next pass are recorded among
        the events of the next pass.
        """
        median = summarize(samples.values).median
        first = len(self.passes) - len(samples.values) * samples.loops
        self()
        timed = range(first, len(self.passes) - 1)
        chosen = min(timed, key=lambda n: abs(self.passes[n][1] - self.passes[n][0] - median))
        begin, end, events = self.passes[chosen]
        return PassProfile.from_events([*events, *self.passes[chosen + 1][2]], phases, begin, end)
