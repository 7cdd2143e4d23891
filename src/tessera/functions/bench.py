"""Measure one case of a user's own benchmark function."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from tessera.functions.benchmark import get_benchmark
from tessera.launch.worker import RunContext
from tessera.measure.environment import describe_environment
from tessera.measure.memory import measure_resident_growth
from tessera.measure.sampler import sample
from tessera.measure.samples import Sampling
from tessera.report.feature_section import make_generic_section
from tessera.results.metrics import make_metrics, make_time_metrics
from tessera.results.record import Case, Record

INLINE_NOTE = "measured in the calling process: its function is not in a file that a worker could import"

build_section = make_generic_section("Functions")


def preload(case: Case) -> None:
    """Load the file that defines the case's benchmark before the measuring process is forked."""
    get_benchmark(case.name)


def build_callable(case: Case, check: bool = True) -> AbstractContextManager[Callable[[], Any]]:
    """Return the context manager that sets up the callable of a case and cleans up after it (callable hook)."""
    return get_benchmark(case.name).prepare(case.params)


def find_version(case: Case) -> str:
    """Return the version of the case's benchmark (version hook)."""
    return get_benchmark(case.name).version


def run_case(context: RunContext, case: Case, sampling: Sampling) -> Record:
    """Measure the time and the memory of a benchmark function for one combination of axis values."""
    entry = get_benchmark(case.name)
    with entry.prepare(case.params) as timed:
        growth = measure_resident_growth(timed)
        samples = sample(timed, sampling, sync=context.worker.sync)
    memory = {} if growth is None else make_metrics({"peak_resident": growth})
    return Record(
        case=case,
        version=entry.version,
        launches=(samples,),
        metrics=make_time_metrics(samples) | memory,
        environment=describe_environment(),
        notes=() if entry.file else (INLINE_NOTE,),
    )
