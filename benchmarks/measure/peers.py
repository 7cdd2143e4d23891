"""Verdicts of other tools on whether B is slower than A: each tool applies its own rule to its own samples.

Every process is forked from an interpreter that has imported torch, so that no tool spends its budget on imports. For
the other tools, A and B are forked from the same interpreter, which favours these tools.
"""

from __future__ import annotations

import random
from typing import Literal

from asv._stats import is_different
from asv_runner.statistics import compute_stats
from pyperf import Benchmark, Run
from pyperf._compare import CompareData, CompareResult

from measure.work import build_work
from tessera.launch.fresh import FreshProcess

ToolVerdict = Literal["slower", "faster", ""]
THRESHOLD = 0.01  # the smallest relative change that is reported, for all tools
PROCESSES_PER_SIDE, VALUES_PER_PROCESS, VALUE_SECONDS = (
    5,
    5,
    0.1,
)  # 2.5 s per side as in pyperf: several processes, values of 100 ms


def judge_with_torch(extra: int) -> ToolVerdict:
    """Run torch.utils.benchmark for A, then for B, each in a separate process, and judge the ratio of the medians."""
    a, b = (_call_in_process("measure.peers:measure_blocked_median", extra_elements) for extra_elements in (0, extra))
    return _compare_with_threshold(b / a)


def measure_blocked_median(extra: int) -> float:
    from torch.utils.benchmark import Timer

    return float(Timer("fn()", globals={"fn": build_work(extra)}).blocked_autorange(min_run_time=2.5).median)


def sample_processes(extra: int) -> tuple[list[list[float]], list[list[float]]]:
    """Return values of several processes per side, interleaved as in asv; pyperf itself runs all of A before B."""
    sides: tuple[list[list[float]], list[list[float]]] = ([], [])
    for _ in range(PROCESSES_PER_SIDE):
        order = [0, 1]
        random.shuffle(order)
        for side in order:
            sides[side].append(_call_in_process("measure.peers:time_blocks", extra if side else 0))
    return sides


def time_blocks(extra: int) -> list[float]:
    from timeit import Timer

    timer = Timer("fn()", globals={"fn": build_work(extra)})
    timer.timeit(50)
    number = max(1, int(VALUE_SECONDS / (timer.timeit(50) / 50)))
    return [timer.timeit(number) / number for _ in range(VALUES_PER_PROCESS)]


def judge_with_pyperf(sides: tuple[list[list[float]], list[list[float]]]) -> ToolVerdict:
    """Apply pyperf's compare_to: a t-test on all values, and a change of the mean above the threshold (--min-speed)."""
    benchmarks = [
        Benchmark([Run(values, metadata={"name": "work"}, collect_metadata=False) for values in side]) for side in sides
    ]
    a, b = (CompareData(name, bench) for name, bench in zip("AB", benchmarks, strict=True))
    result = CompareResult(a, b, min_speed=THRESHOLD * 100)
    return _compare_with_threshold(result.norm_mean) if result.significant else ""


def judge_with_asv(sides: tuple[list[list[float]], list[list[float]]]) -> ToolVerdict:
    """Apply asv's rule: a significant difference (Mann-Whitney test, then intervals), and a ratio beyond the factor."""
    a, b = ([value for process in side for value in process] for side in sides)
    (median_a, stats_a), (median_b, stats_b) = compute_stats(a, 1), compute_stats(b, 1)
    if not is_different(a, b, stats_a, stats_b):
        return ""
    return _compare_with_threshold(median_b / median_a)


def _compare_with_threshold(ratio: float) -> ToolVerdict:
    if ratio > 1 + THRESHOLD:
        return "slower"
    return "faster" if ratio < 1 / (1 + THRESHOLD) else ""


def _call_in_process(target: str, extra: int):  # type: ignore[no-untyped-def]
    with FreshProcess() as process:
        return process.call(target, extra)
