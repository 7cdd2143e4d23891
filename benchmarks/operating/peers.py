"""The same 20 operators under Tessera, torch.utils.benchmark, pytest-benchmark and pyperf, in one run.

*Time to an interval*: how long it takes until the 95 % interval of the median of a tool's own values is within 3 %. A
tool that has no such rule is asked for twice as long again and again; all of that counts, since nobody knows beforehand
how long will do, and what the last run alone took is given beside it. *Spread*: the figures of ten runs of each tool,
which spends the same time on an operator in every run, quiet and with a busy process on the other core. A run of ours
is what `tessera ops --launches 5` does: five short launches, spread over the run, and their `floor`; the others measure
an operator once in a run. pytest-benchmark is shown by its minimum as well as by its median, and taken by the one that
varies less; ours is taken by its floor, with its median beside it. Every process is forked from an interpreter that
has torch imported. The catalogue's own test holds the operators against their references; here they are only timed.
"""

from __future__ import annotations

import math
import os
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
from measuring.detection import busy_core

from tessera.launch.fresh import FreshProcess
from tessera.measure.sampler import sample
from tessera.measure.samples import Sampling
from tessera.measure.statistics import median_interval
from tessera.operators.bench import preload
from tessera.operators.cases import cases
from tessera.operators.preparation import unchecked_callable_of
from tessera.results.figures import time_metrics
from tessera.results.record import Case, Record, merge_launches

NAMES = (
    "add", "multiply", "exp", "sum", "softmax", "matmul", "linear", "conv2d", "max_pool2d", "batch_norm",
    "relu", "gelu", "layer_norm", "sort", "gather", "cat", "cross_entropy", "embedding", "mean", "tanh",
)  # fmt: skip
OURS = "tessera"
TARGET = 0.03
PATIENCE = 3.0  # seconds after which a tool has not reached the interval, and is charged what it took
RUN = 0.2  # seconds that a tool spends on an operator in a run
LAUNCHES = 5  # of ours in that time
REPEATS = 3
Fn = Callable[[], Any]
Found = dict[str, dict[str, float]]


def torch_blocked(fn: Fn, seconds: float) -> list[float]:
    from torch.utils.benchmark import Timer

    return list(Timer("fn()", globals={"fn": fn}).blocked_autorange(min_run_time=seconds).times)


def torch_adaptive(fn: Fn, seconds: float) -> list[float]:
    from torch.utils.benchmark import Timer

    return list(
        Timer("fn()", globals={"fn": fn}).adaptive_autorange(min_run_time=seconds / 2, max_run_time=seconds).times
    )


def pytest_benchmark(fn: Fn, seconds: float) -> list[float]:
    from pytest_benchmark.fixture import BenchmarkFixture

    quiet = SimpleNamespace(debug=lambda *a, **k: None, info=lambda *a, **k: None, warning=lambda *a, **k: None)
    fixture = BenchmarkFixture(
        node=SimpleNamespace(name="fn", nodeid="fn"),
        disable_gc=True,
        timer=SimpleNamespace(target=time.perf_counter),
        min_rounds=5,
        min_time=5e-6,
        max_time=seconds,
        precision=None,
        confidence=None,
        warmup=False,
        warmup_iterations=0,
        calibration_precision=10,
        add_stats=lambda stats: None,
        logger=quiet,
        warner=quiet,
        disabled=False,
        cprofile=False,
        cprofile_loops=None,
        cprofile_dump=None,
    )
    fixture(fn)
    return [value / fixture.stats.iterations for value in fixture.stats.stats.data]


def pyperf_values(fn: Fn, seconds: float) -> list[float]:
    """Values as pyperf's workers take them: calibrated loops of at least 100 ms, one warm-up value first."""
    from timeit import Timer

    timer = Timer("fn()", globals={"fn": fn})
    loops = 1
    while timer.timeit(loops) < 0.05:
        loops *= 2
    loops = max(1, loops * 2)
    timer.timeit(loops)
    return [timer.timeit(loops) / loops for _ in range(max(1, round(seconds / 0.1)))]


PEERS = {
    "torch blocked_autorange": torch_blocked,
    "torch adaptive_autorange": torch_adaptive,
    "pytest-benchmark": pytest_benchmark,
    "pyperf": pyperf_values,
}


def seconds_to_interval(tool: str, case: Case) -> tuple[float, float]:
    """In a fresh process: how long the tool took to know the median to 3 %, and its last run alone."""
    fn = unchecked_callable_of(case)
    fn()
    began = time.perf_counter()
    if tool == OURS:
        sample(fn, Sampling(target=TARGET, budget=PATIENCE))
        took = time.perf_counter() - began
        return took, took
    seconds = 0.005
    while True:
        last = time.perf_counter()
        values = PEERS[tool](fn, seconds)
        now = time.perf_counter()
        if median_interval(values).relative <= TARGET or now - last >= PATIENCE:
            return now - began, now - last
        seconds *= 2


def figures(tool: str, case: Case) -> dict[str, float]:
    """In a fresh process: what the tool tells one run from another by, by name."""
    fn = unchecked_callable_of(case)
    fn()
    values = np.asarray(PEERS[tool](fn, RUN))
    if tool == "pyperf":
        return {"mean": float(values.mean())}
    found = {"median": float(np.median(values))}
    return found | {"minimum": float(values.min())} if tool == "pytest-benchmark" else found


def launch(case: Case) -> Record:
    """In a fresh process: one launch of ours."""
    fn = unchecked_callable_of(case)
    fn()
    samples = sample(fn, Sampling(target=1e-6, budget=RUN / LAUNCHES))
    return Record(case=case, launches=(samples,), metrics=time_metrics(samples))


def time_to_interval(say: Callable[[str], None]) -> dict[str, Any]:
    wanted = cases(list(NAMES), size=["medium"], passes=["forward"])
    with _on_one_core(wanted):
        waits, last = _waits(wanted, [OURS, *PEERS], say)
    lines = [f"time to a 3 % interval, {len(wanted)} operators, medium, forward (median seconds; ours / the best peer)"]
    lines += [*_lines(waits), "  where the last, sufficient run of a peer alone counts", *_lines(last)]
    return {"seconds to 3 %": waits, "last run": last, "lines": lines}


def spread_over_runs(runs: int, say: Callable[[str], None]) -> dict[str, Any]:
    wanted = cases(list(NAMES), size=["medium"], passes=["forward"])
    spreads, lines = {}, []
    with _on_one_core(wanted) as other:
        for name, load in (("quiet", nullcontext()), ("loaded", busy_core(other))):
            with load:
                found = _spreads(wanted, runs, lambda text, name=name: say(f"{name}, {text}"))
            spreads[name] = found
            lines.append(f"spread over {runs} runs of {RUN} s an operator, {name} (median of (max - min) / median)")
            lines += _lines(found)
    return {"spread": spreads, "lines": lines}


@contextmanager
def _on_one_core(wanted: list[Case]) -> Iterator[int]:
    """This process and those that it forks run on the first core, with everything imported; gives another core."""
    import pytest_benchmark.fixture  # noqa: F401
    import torch.utils.benchmark  # noqa: F401

    preload(wanted[0])
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:1])
    try:
        yield cores[-1]
    finally:
        os.sched_setaffinity(0, cores)


def _waits(wanted: list[Case], tools: list[str], say: Callable[[str], None]) -> list[Found]:
    """By tool and operator: seconds to an interval, and what the last run alone took."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for number in range(REPEATS):
        for case in random.sample(wanted, len(wanted)):
            say(f"time to an interval, round {number + 1}: {case.name}")
            for tool in random.sample(tools, len(tools)):
                found[tool][case.name].append(_fresh("operating.peers:seconds_to_interval", tool, case))
    return [
        {
            tool: {name: float(np.median([pair[which] for pair in v])) for name, v in by.items()}
            for tool, by in found.items()
        }
        for which in (0, 1)
    ]


def _spreads(wanted: list[Case], runs: int, say: Callable[[str], None]) -> Found:
    """By tool and figure, and by operator: how far apart the figures of its runs are.

    A run goes through the operators as often as ours has launches; each peer has its turn in one of these passes.
    """
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for number in range(runs):
        say(f"spread, run {number + 1} of {runs}")
        ours: dict[str, list[Record]] = defaultdict(list)
        turn = {(tool, case.name): random.randrange(LAUNCHES) for tool in PEERS for case in wanted}
        for place in range(LAUNCHES):
            for case in random.sample(wanted, len(wanted)):
                for tool in random.sample([OURS, *PEERS], 1 + len(PEERS)):
                    if tool == OURS:
                        ours[case.name].append(_fresh("operating.peers:launch", case))
                    elif turn[tool, case.name] == place:
                        for name, value in _fresh("operating.peers:figures", tool, case).items():
                            found[f"{tool}, {name}"][case.name].append(value)
        for name, launches in ours.items():
            metrics = merge_launches(launches).metrics
            found[OURS][name].append(metrics["floor"].value)
            found[f"{OURS}, median"][name].append(metrics["time"].value)
    return {
        tool: {name: (max(v) - min(v)) / float(np.median(v)) for name, v in by.items()} for tool, by in found.items()
    }


def _lines(found: Found) -> list[str]:
    middle = {tool: float(np.median(list(by.values()))) for tool, by in found.items()}
    best = min((tool for tool in middle if not tool.startswith(OURS)), key=lambda tool: middle[tool])
    logs = [math.log(found[OURS][name] / found[best][name]) for name in found[OURS]]
    ratio = median_interval(logs)
    value, low, high = (math.exp(x) for x in (ratio.value, ratio.low, ratio.high))
    return [
        *(f"  {tool:26} {value:.4f}" for tool, value in sorted(middle.items(), key=lambda item: item[1])),
        f"  ours / {best}: {middle[OURS] / middle[best]:.2f} of the medians;"
        f" per operator {value:.2f} ({low:.2f} to {high:.2f})",
    ]


def _fresh(target: str, *args: Any) -> Any:
    with FreshProcess() as process:
        return process.call(target, *args)
