"""Overhead and bias of the sampler against torch.utils.benchmark and timeit, and the time to the same interval."""

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
from tessera.measure.statistics import median_interval

OURS = "tessera"
TARGET = 0.03
PATIENCE = 2.0  # seconds after which a tool has not reached the interval, and is charged what it took
QUIET = 0.1  # figures are compared in the quietest rounds: a shared host is often slower by half for seconds
SPEED_EVERY = 4  # rounds
INTERPRETERS = 16
Fn = Callable[[], object]


def workloads() -> dict[str, Fn]:
    torch.set_num_threads(1)
    a, b = torch.randn(8), torch.randn(8)
    c, d = torch.randn(1024, 1024), torch.randn(1024, 1024)
    return {
        "no-op": lambda: None,
        "torch.add, 8 elements": lambda: torch.add(a, b),
        "torch.add, 1024 x 1024": lambda: torch.add(c, d),
    }


def ours(fn: Fn) -> float:
    return float(np.median(sample(fn, Sampling(target=0.01, budget=0.1)).values))


def torch_blocked(fn: Fn) -> float:
    return float(Timer("fn()", globals={"fn": fn}).blocked_autorange(min_run_time=0.1).median)


def torch_adaptive(fn: Fn) -> float:
    return float(Timer("fn()", globals={"fn": fn}).adaptive_autorange(min_run_time=0.02, max_run_time=0.2).median)


def timeit_median(fn: Fn) -> float:
    timer = timeit.Timer("fn()", globals={"fn": fn})
    number = max(1, int(0.02 / (timer.timeit(100) / 100)))
    return float(np.median(timer.repeat(5, number))) / number


FIGURES = {
    OURS: ours,
    "torch blocked": torch_blocked,
    "torch adaptive": torch_adaptive,
    "timeit": timeit_median,
}


def ours_to_target(fn: Fn) -> float:
    began = time.perf_counter()
    sample(fn, Sampling(target=TARGET, budget=PATIENCE))
    return time.perf_counter() - began


def torch_to_target(fn: Fn) -> float:
    """The shortest of its runs whose own blocks give the interval; only that last run is charged."""
    timer = Timer("fn()", globals={"fn": fn})
    seconds = 0.005
    while True:
        began = time.perf_counter()
        times = timer.blocked_autorange(min_run_time=seconds).times
        took = time.perf_counter() - began
        if median_interval(times).relative <= TARGET or seconds >= PATIENCE:
            return took
        seconds *= 2


def timeit_to_target(fn: Fn) -> float:
    """`timeit.repeat` with the shortest blocks of its own choosing rule (5 ms instead of 200), same charge."""
    timer = timeit.Timer("fn()", globals={"fn": fn})
    repeats = 6
    while True:
        began = time.perf_counter()
        number = max(1, int(0.005 / (timer.timeit(10) / 10)))
        times = timer.repeat(repeats, number)
        took = time.perf_counter() - began
        if median_interval(times).relative <= TARGET or repeats * 0.005 >= PATIENCE:
            return took
        repeats *= 2


SPEEDS = {OURS: ours_to_target, "torch blocked": torch_to_target, "timeit": timeit_to_target}


def one_interpreter(rounds: int) -> tuple[dict[tuple[str, str], list[float]], dict[tuple[str, str], list[float]]]:
    """Every tool on every workload in random order, round after round: the figures, and the seconds to the interval."""
    work = workloads()
    figures: dict[tuple[str, str], list[float]] = defaultdict(list)
    speeds: dict[tuple[str, str], list[float]] = defaultdict(list)
    jobs = [(FIGURES, figures, w, t) for w in work for t in FIGURES]
    slow = [(SPEEDS, speeds, w, t) for w in work for t in SPEEDS]
    for number in range(rounds):
        now = jobs + slow if number % SPEED_EVERY == 0 else jobs
        for tools, kept, name, tool in random.sample(now, len(now)):
            kept[name, tool].append(tools[tool](work[name]))
    return dict(figures), dict(speeds)


def bias(rounds: int, say: Callable[[str], None]) -> list[dict[str, object]]:
    """The rounds divided over fresh interpreters.

    Where code and data happen to lie makes even the same tool differ by 10 % on a no-op from one interpreter to the
    next (torch's two own rules do, which run the same loop): so ratios are taken within each, the interval over all.
    """
    parts = []
    for number in range(INTERPRETERS):
        say(f"bias, interpreter {number + 1} of {INTERPRETERS}")
        with get_context("spawn").Pool(1) as pool:
            parts.append(pool.apply(one_interpreter, (max(SPEED_EVERY, rounds // INTERPRETERS),)))
    rows: list[dict[str, object]] = []
    for name in workloads():
        for which, kind, quantile in ((0, "figure", QUIET), (1, "seconds to a 3 % interval", 0.5)):
            tools = [tool for workload, tool in parts[0][which] if workload == name]
            seen = {t: [float(np.quantile(part[which][name, t], quantile)) for part in parts] for t in tools}
            middle = {tool: float(np.median(values)) for tool, values in seen.items()}
            against = min((tool for tool in tools if tool != OURS), key=lambda tool: middle[tool])
            ratio = median_interval([a / b for a, b in zip(seen[OURS], seen[against], strict=True)])
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
