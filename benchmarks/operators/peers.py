"""Comparison of Tessera, torch.utils.benchmark, pytest-benchmark and pyperf on 20 operators, interleaved in one run.

*Time to an interval*: the time until the 95 % confidence interval of the median is within 3 %. A tool without such a
stopping rule is run again with twice the time until it succeeds. All of these attempts count, because the required time
is not known beforehand; the time of the last attempt alone is also reported. *Spread*: the range of the results of ten
runs of each tool, with equal time per operator, on an idle machine and with a busy process on the other core. A run of
Tessera is `tessera ops --launches 5`: five short launches, spread over the run, and their `floor`. The other tools
measure an operator once per run. pytest-benchmark is reported by its minimum and its median, and compared by the one
that varies less; Tessera is compared by its floor, with its median beside it. Every process is forked from an
interpreter that has imported torch. Results are not checked here; the tests of the catalogue do that.
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
from measure.detection import keep_core_busy

from tessera.launch.fresh import FreshProcess
from tessera.measure.sampler import sample
from tessera.measure.samples import Sampling
from tessera.measure.statistics import estimate_median
from tessera.operators.bench import build_callable, preload
from tessera.operators.cases import cases
from tessera.results.metrics import make_time_metrics
from tessera.results.record import Case, Record, merge_launches

OPERATOR_NAMES = (
    "add", "multiply", "exp", "sum", "softmax", "matmul", "linear", "conv2d", "max_pool2d", "batch_norm",
    "relu", "gelu", "layer_norm", "sort", "gather", "cat", "cross_entropy", "embedding", "mean", "tanh",
)  # fmt: skip
OURS = "tessera"
TARGET_INTERVAL = 0.03
MAX_WAIT_SECONDS = 3.0  # seconds after which a tool is stopped; the time so far then counts as its time to the interval
RUN_SECONDS = 0.2  # seconds that a tool measures one operator in a run
LAUNCHES = 5  # launches of Tessera in RUN_SECONDS
INTERVAL_ROUNDS = 3
Fn = Callable[[], Any]
FiguresByTool = dict[str, dict[str, float]]


def run_torch_blocked(fn: Fn, seconds: float) -> list[float]:
    from torch.utils.benchmark import Timer

    return list(Timer("fn()", globals={"fn": fn}).blocked_autorange(min_run_time=seconds).times)


def run_torch_adaptive(fn: Fn, seconds: float) -> list[float]:
    from torch.utils.benchmark import Timer

    return list(
        Timer("fn()", globals={"fn": fn}).adaptive_autorange(min_run_time=seconds / 2, max_run_time=seconds).times
    )


def run_pytest_benchmark(fn: Fn, seconds: float) -> list[float]:
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


def run_pyperf(fn: Fn, seconds: float) -> list[float]:
    """Time a function as pyperf's workers do: calibrated loops of at least 100 ms, after one warm-up value."""
    from timeit import Timer

    timer = Timer("fn()", globals={"fn": fn})
    loops = 1
    while timer.timeit(loops) < 0.05:
        loops *= 2
    loops = max(1, loops * 2)
    timer.timeit(loops)
    return [timer.timeit(loops) / loops for _ in range(max(1, round(seconds / 0.1)))]


PEERS = {
    "torch blocked_autorange": run_torch_blocked,
    "torch adaptive_autorange": run_torch_adaptive,
    "pytest-benchmark": run_pytest_benchmark,
    "pyperf": run_pyperf,
}


def measure_seconds_to_interval(tool: str, case: Case) -> tuple[float, float]:
    """Return the seconds until the median's interval is within 3 %: of all attempts, and of the last attempt."""
    fn = build_callable(case, check=False)
    fn()
    began = time.perf_counter()
    if tool == OURS:
        sample(fn, Sampling(target=TARGET_INTERVAL, budget=MAX_WAIT_SECONDS))
        took = time.perf_counter() - began
        return took, took
    seconds = 0.005
    while True:
        last = time.perf_counter()
        values = PEERS[tool](fn, seconds)
        now = time.perf_counter()
        if estimate_median(values).relative <= TARGET_INTERVAL or now - last >= MAX_WAIT_SECONDS:
            return now - began, now - last
        seconds *= 2


def measure_figures(tool: str, case: Case) -> dict[str, float]:
    """Return the statistics (mean, median or minimum) by which runs of a tool are compared, by name, in seconds."""
    fn = build_callable(case, check=False)
    fn()
    values = np.asarray(PEERS[tool](fn, RUN_SECONDS))
    if tool == "pyperf":
        return {"mean": float(values.mean())}
    by_tool = {"median": float(np.median(values))}
    return by_tool | {"minimum": float(values.min())} if tool == "pytest-benchmark" else by_tool


def measure_launch(case: Case) -> Record:
    """Measure one launch of Tessera."""
    fn = build_callable(case, check=False)
    fn()
    samples = sample(fn, Sampling(target=1e-6, budget=RUN_SECONDS / LAUNCHES))
    return Record(case=case, launches=(samples,), metrics=make_time_metrics(samples))


def compare_time_to_interval(log: Callable[[str], None]) -> dict[str, Any]:
    wanted = cases(list(OPERATOR_NAMES), size=["medium"], passes=["forward"])
    with _pin_to_one_core(wanted):
        waits, last = _compare_waits(wanted, [OURS, *PEERS], log)
    lines = [f"time to a 3 % interval, {len(wanted)} operators, medium, forward (median seconds; ours / the best peer)"]
    lines += [*_format_lines(waits), "  where the last, sufficient run of a peer alone counts", *_format_lines(last)]
    return {"seconds to 3 %": waits, "last run": last, "lines": lines}


def compare_spread_over_runs(runs: int, log: Callable[[str], None]) -> dict[str, Any]:
    wanted = cases(list(OPERATOR_NAMES), size=["medium"], passes=["forward"])
    spreads, lines = {}, []
    with _pin_to_one_core(wanted) as other:
        for name, load in (("quiet", nullcontext()), ("loaded", keep_core_busy(other))):
            with load:
                by_tool = _compare_spreads(wanted, runs, lambda text, name=name: log(f"{name}, {text}"))
            spreads[name] = by_tool
            lines.append(
                f"spread over {runs} runs of {RUN_SECONDS} s an operator, {name} (median of (max - min) / median)"
            )
            lines += _format_lines(by_tool)
    return {"spread": spreads, "lines": lines}


@contextmanager
def _pin_to_one_core(wanted: list[Case]) -> Iterator[int]:
    """Import all libraries, pin this process and its forks to the first core, and yield the number of another core."""
    import pytest_benchmark.fixture  # noqa: F401
    import torch.utils.benchmark  # noqa: F401

    preload(wanted[0])
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:1])
    try:
        yield cores[-1]
    finally:
        os.sched_setaffinity(0, cores)


def _compare_waits(wanted: list[Case], tools: list[str], log: Callable[[str], None]) -> list[FiguresByTool]:
    """Return the seconds to an interval by tool and operator: over all attempts, and of the last attempt alone."""
    by_tool: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for number in range(INTERVAL_ROUNDS):
        for case in random.sample(wanted, len(wanted)):
            log(f"time to an interval, round {number + 1}: {case.name}")
            for tool in random.sample(tools, len(tools)):
                by_tool[tool][case.name].append(
                    _run_in_fresh_process("operators.peers:measure_seconds_to_interval", tool, case)
                )
    return [
        {
            tool: {name: float(np.median([pair[which] for pair in v])) for name, v in by.items()}
            for tool, by in by_tool.items()
        }
        for which in (0, 1)
    ]


def _compare_spreads(wanted: list[Case], runs: int, log: Callable[[str], None]) -> FiguresByTool:
    """Return the relative range over the runs of each tool's statistics, by tool (with statistic) and operator.

    A run has one pass through the operators per launch of Tessera; the other tools are measured in one random pass.
    """
    by_tool: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for number in range(runs):
        log(f"spread, run {number + 1} of {runs}")
        ours: dict[str, list[Record]] = defaultdict(list)
        turn = {(tool, case.name): random.randrange(LAUNCHES) for tool in PEERS for case in wanted}
        for place in range(LAUNCHES):
            for case in random.sample(wanted, len(wanted)):
                for tool in random.sample([OURS, *PEERS], 1 + len(PEERS)):
                    if tool == OURS:
                        ours[case.name].append(_run_in_fresh_process("operators.peers:measure_launch", case))
                    elif turn[tool, case.name] == place:
                        for name, value in _run_in_fresh_process("operators.peers:measure_figures", tool, case).items():
                            by_tool[f"{tool}, {name}"][case.name].append(value)
        for name, launches in ours.items():
            metrics = merge_launches(launches).metrics
            by_tool[OURS][name].append(metrics["floor"].value)
            by_tool[f"{OURS}, median"][name].append(metrics["time"].value)
    return {
        tool: {name: (max(v) - min(v)) / float(np.median(v)) for name, v in by.items()} for tool, by in by_tool.items()
    }


def _format_lines(by_tool: FiguresByTool) -> list[str]:
    middle = {tool: float(np.median(list(by.values()))) for tool, by in by_tool.items()}
    best = min((tool for tool in middle if not tool.startswith(OURS)), key=lambda tool: middle[tool])
    logs = [math.log(by_tool[OURS][name] / by_tool[best][name]) for name in by_tool[OURS]]
    ratio = estimate_median(logs)
    value, low, high = (math.exp(x) for x in (ratio.value, ratio.low, ratio.high))
    return [
        *(f"  {tool:26} {value:.4f}" for tool, value in sorted(middle.items(), key=lambda item: item[1])),
        f"  ours / {best}: {middle[OURS] / middle[best]:.2f} of the medians;"
        f" per operator {value:.2f} ({low:.2f} to {high:.2f})",
    ]


def _run_in_fresh_process(target: str, *args: Any) -> Any:
    with FreshProcess() as process:
        return process.call(target, *args)
