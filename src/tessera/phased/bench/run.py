"""One case in one process: its steps timed, checked against plain torch, and taken apart phase by phase."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import torch

from tessera.launch.worker import Worker
from tessera.measure.environment import environment
from tessera.measure.memory import resident_growth
from tessera.measure.sampler import sample
from tessera.measure.samples import Sampling
from tessera.measure.statistics import summarize
from tessera.phased.bench.agreement import agreement
from tessera.phased.bench.alone import alone, parts
from tessera.phased.bench.figures import metrics, notes, predictions
from tessera.phased.bench.opening import open_model, storage, warm_up
from tessera.phased.bench.step import Step
from tessera.phased.bench.workload import Workload
from tessera.phased.choices import HOLD_ALL
from tessera.phased.model import PhasedModel
from tessera.phased.profile.directory import PROFILE
from tessera.results.figures import time_metrics
from tessera.results.record import Case, Metric, Record

VERSION = "1"


def run_case(worker: Worker, case: Case, sampling: Sampling) -> Record:
    """Measure one case: its steps, what each phase takes by itself, its memory, and whether plain torch agrees."""
    torch.set_num_threads(int(case.params.get("threads", 1)))  # of a device; the worker has cores for two of them
    workload = Workload.of(case)
    inputs = workload.inputs()
    with workload.file() as path, ExitStack() as stack:
        opened: list[PhasedModel] = []

        def first_step() -> None:
            opened.append(stack.enter_context(open_model(worker, case, workload, path)))
            opened[0].run(inputs)

        def sequential(begins: Sequence[int]) -> PhasedModel:
            alike = {"schedule": "sequential", "devices": 1, "workers": "threads", "phases": begins}
            return open_model(worker, case, workload, path, **alike)

        warm_up(case)
        grown = resident_growth(first_step)
        model = opened[0]
        agreed = agreement(workload, model, inputs)
        step = Step(model=model, inputs=inputs)
        samples = sample(step, sampling)
        times = alone(model, inputs, sequential)
        streamed = model.schedule not in HOLD_ALL
        profile = step.typical(samples, parts(model.phases, times, workload.batches, streamed=streamed))
        seen = environment()
        found = time_metrics(samples) | metrics(profile, model, workload, summarize(samples.values).median)
        if grown is not None:
            found["peak_memory"] = Metric(grown, "B", "lower")
        if agreed.error is not None:
            found["error"] = Metric(agreed.error, "", "lower")
        return Record(
            case=case,
            version=VERSION,
            launches=(samples,),
            metrics=found,
            predicted=predictions(model, workload, case, seen),
            environment=seen,
            conditions={
                "storage": storage(case.params),
                "arithmetic": model.arithmetic,
                PROFILE: profile.to_json(),
            },
            notes=(*notes(model, path, case), *((agreed.note,) if agreed.note else ())),
        )
