"""How the peers decide whether B is slower than A: their own rules, on samples taken in their own manner.

Every process is forked from an interpreter that has imported torch, so that no tool's budget goes into imports. The
peers' two sides come from the same interpreter, which is kinder to them than two would be.
"""

from __future__ import annotations

import random
from typing import Literal

from asv._stats import is_different
from asv_runner.statistics import compute_stats
from pyperf import Benchmark, Run
from pyperf._compare import CompareData, CompareResult

from measuring.work import make_work
from tessera.launch.fresh import FreshProcess

Call = Literal["slower", "faster", ""]
THRESHOLD = 0.01  # the change that matters, the same for all
PROCESSES, VALUES, VALUE_SECONDS = 5, 5, 0.1  # 2.5 s a side, as pyperf: several processes, values of 100 ms


def torch_medians(extra: int) -> Call:
    """torch.utils.benchmark, A then B, each in a process of its own; the medians' ratio against the threshold."""
    a, b = (_in_process("measuring.peers:blocked_median", extra_) for extra_ in (0, extra))
    return _beyond(b / a)


def blocked_median(extra: int) -> float:
    from torch.utils.benchmark import Timer

    return float(Timer("fn()", globals={"fn": make_work(extra)}).blocked_autorange(min_run_time=2.5).median)


def process_values(extra: int) -> tuple[list[list[float]], list[list[float]]]:
    """Values of several processes per side, the sides in turns (asv's rounds; kinder to pyperf than A before B)."""
    sides: tuple[list[list[float]], list[list[float]]] = ([], [])
    for _ in range(PROCESSES):
        order = [0, 1]
        random.shuffle(order)
        for side in order:
            sides[side].append(_in_process("measuring.peers:block_values", extra if side else 0))
    return sides


def block_values(extra: int) -> list[float]:
    from timeit import Timer

    timer = Timer("fn()", globals={"fn": make_work(extra)})
    timer.timeit(50)
    number = max(1, int(VALUE_SECONDS / (timer.timeit(50) / 50)))
    return [timer.timeit(number) / number for _ in range(VALUES)]


def pyperf_compare(sides: tuple[list[list[float]], list[list[float]]]) -> Call:
    """pyperf's compare_to: a t-test on all values, and the mean's change above the threshold (--min-speed)."""
    benchmarks = [
        Benchmark([Run(values, metadata={"name": "work"}, collect_metadata=False) for values in side]) for side in sides
    ]
    a, b = (CompareData(name, bench) for name, bench in zip("AB", benchmarks, strict=True))
    result = CompareResult(a, b, min_speed=THRESHOLD * 100)
    return _beyond(result.norm_mean) if result.significant else ""


def asv_rule(sides: tuple[list[list[float]], list[list[float]]]) -> Call:
    """asv's: different by its test (Mann-Whitney, then the intervals), and beyond the factor."""
    a, b = ([value for process in side for value in process] for side in sides)
    (median_a, stats_a), (median_b, stats_b) = compute_stats(a, 1), compute_stats(b, 1)
    if not is_different(a, b, stats_a, stats_b):
        return ""
    return _beyond(median_b / median_a)


def _beyond(ratio: float) -> Call:
    if ratio > 1 + THRESHOLD:
        return "slower"
    return "faster" if ratio < 1 / (1 + THRESHOLD) else ""


def _in_process(target: str, extra: int):  # type: ignore[no-untyped-def]
    with FreshProcess() as process:
        return process.call(target, extra)
