"""Comparison of the sampler with torch.utils.benchmark and timeit: overhead, bias, and time to equal precision."""

from __future__ import annotations

import random
import time
import timeit
from collections import defaultdict
from collections.abc import Callable
from multiprocessing import get_context

import numpy as np
import torch
from torch.utils.benchmark import Timer

from tessera.measure.sampler import sample
from tessera.measure.samples import Sampling
from tessera.measure.statistics import estimate_median

OURS = "tessera"
TARGET_INTERVAL = 0.03  # relative width of the confidence interval of the median
MAX_SECONDS = 2.0  # seconds after which a tool is stopped; its time so far then counts
QUIET_QUANTILE = 0.1  # results are compared by this quantile, because a shared host is often 50 % slower for seconds
ROUNDS_PER_SPEED_TRIAL = 4  # the time to the target interval is measured in every 4th round
INTERPRETERS = 16
Fn = Callable[[], object]


def build_workloads() -> dict[str, Fn]:
    torch.set_num_threads(1)
    a, b = torch.randn(8), torch.randn(8)
    c, d = torch.randn(1024, 1024), torch.randn(1024, 1024)
    return {
        "no-op": lambda: None,
        "torch.add, 8 elements": lambda: torch.add(a, b),
        "torch.add, 1024 x 1024": lambda: torch.add(c, d),
    }


def time_with_tessera(fn: Fn) -> float:
    return float(np.median(sample(fn, Sampling(target=0.01, budget=0.1)).values))


def time_with_torch_blocked(fn: Fn) -> float:
    return float(Timer("fn()", globals={"fn": fn}).blocked_autorange(min_run_time=0.1).median)


def time_with_torch_adaptive(fn: Fn) -> float:
    return float(Timer("fn()", globals={"fn": fn}).adaptive_autorange(min_run_time=0.02, max_run_time=0.2).median)


def time_with_timeit(fn: Fn) -> float:
    timer = timeit.Timer("fn()", globals={"fn": fn})
    number = max(1, int(0.02 / (timer.timeit(100) / 100)))
    return float(np.median(timer.repeat(5, number))) / number


TIMERS = {
    OURS: time_with_tessera,
    "torch blocked": time_with_torch_blocked,
    "torch adaptive": time_with_torch_adaptive,
    "timeit": time_with_timeit,
}


def reach_target_with_tessera(fn: Fn) -> float:
    began = time.perf_counter()
    sample(fn, Sampling(target=TARGET_INTERVAL, budget=MAX_SECONDS))
    return time.perf_counter() - began


def reach_target_with_torch(fn: Fn) -> float:
    """Return the seconds of the first run with a narrow enough interval; earlier, shorter runs do not count."""
    timer = Timer("fn()", globals={"fn": fn})
    seconds = 0.005
    while True:
        began = time.perf_counter()
        times = timer.blocked_autorange(min_run_time=seconds).times
        took = time.perf_counter() - began
        if estimate_median(times).relative <= TARGET_INTERVAL or seconds >= MAX_SECONDS:
            return took
        seconds *= 2


def reach_target_with_timeit(fn: Fn) -> float:
    """Return the seconds of the first `timeit.repeat` with a narrow enough interval; blocks are 5 ms, not 200 ms."""
    timer = timeit.Timer("fn()", globals={"fn": fn})
    repeats = 6
    while True:
        began = time.perf_counter()
        number = max(1, int(0.005 / (timer.timeit(10) / 10)))
        times = timer.repeat(repeats, number)
        took = time.perf_counter() - began
        if estimate_median(times).relative <= TARGET_INTERVAL or repeats * 0.005 >= MAX_SECONDS:
            return took
        repeats *= 2


TARGET_TIMERS = {
    OURS: reach_target_with_tessera,
    "torch blocked": reach_target_with_torch,
    "timeit": reach_target_with_timeit,
}


def run_rounds(rounds: int) -> tuple[dict[tuple[str, str], list[float]], dict[tuple[str, str], list[float]]]:
    """Run every tool on every workload in random order; return the measured times and the seconds to the interval."""
    work = build_workloads()
    figures: dict[tuple[str, str], list[float]] = defaultdict(list)
    speeds: dict[tuple[str, str], list[float]] = defaultdict(list)
    jobs = [(TIMERS, figures, w, t) for w in work for t in TIMERS]
    slow = [(TARGET_TIMERS, speeds, w, t) for w in work for t in TARGET_TIMERS]
    for number in range(rounds):
        now = jobs + slow if number % ROUNDS_PER_SPEED_TRIAL == 0 else jobs
        for tools, kept, name, tool in random.sample(now, len(now)):
            kept[name, tool].append(tools[tool](work[name]))
    return dict(figures), dict(speeds)


def measure_bias(rounds: int, say: Callable[[str], None]) -> list[dict[str, object]]:
    """Divide the rounds over new interpreters, and return one row per workload and measured quantity.

    For a no-op, the result of one tool differs by 10 % between interpreters, because the addresses of code and data
    differ (observed with torch's two stopping rules, which run the same loop). Ratios are therefore taken within each
    interpreter, and the confidence interval over all interpreters.
    """
    parts = []
    for number in range(INTERPRETERS):
        say(f"bias, interpreter {number + 1} of {INTERPRETERS}")
        with get_context("spawn").Pool(1) as pool:
            parts.append(pool.apply(run_rounds, (max(ROUNDS_PER_SPEED_TRIAL, rounds // INTERPRETERS),)))
    rows: list[dict[str, object]] = []
    for name in build_workloads():
        for which, kind, quantile in ((0, "figure", QUIET_QUANTILE), (1, "seconds to a 3 % interval", 0.5)):
            tools = [tool for workload, tool in parts[0][which] if workload == name]
            seen = {t: [float(np.quantile(part[which][name, t], quantile)) for part in parts] for t in tools}
            middle = {tool: float(np.median(values)) for tool, values in seen.items()}
            against = min((tool for tool in tools if tool != OURS), key=lambda tool: middle[tool])
            ratio = estimate_median([a / b for a, b in zip(seen[OURS], seen[against], strict=True)])
            rows.append(
                {
                    "workload": name,
                    "what": kind,
                    "tools": middle,
                    "best peer": against,
                    "ratio": ratio.value,
                    "low": ratio.low,
                    "high": ratio.high,
                }
            )
    return rows
