"""Detection power of each tool: how often it detects a planted slowdown, and how often it reports a false alarm."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from measure import peers
from measure.work import build_pair, plant_slowdowns
from tessera.ab.runner import ABRunner
from tessera.launch import LaunchConfig
from tessera.measure.interleave import sample_interleaved
from tessera.measure.statistics import judge_ratio

PLANTED_SLOWDOWNS = (0.0, 0.02, 0.05, 0.10)  # relative
TOOLS = ("tessera, one process", "tessera, two interpreters", "torch.utils.benchmark", "pyperf", "asv")
WORK_FUNCTION = "measure.work:build_work"
BUSY_PROGRAM = "import numpy as n; a = n.ones(1 << 22); b = a.copy()\nwhile True: b[:] = a"


@contextmanager
def keep_core_busy(core: int) -> Iterator[None]:
    """Run a process that computes and copies memory on core number `core` until the block ends."""
    process = subprocess.Popen([sys.executable, "-c", BUSY_PROGRAM], preexec_fn=lambda: os.sched_setaffinity(0, {core}))
    try:
        time.sleep(1.0)
        yield
    finally:
        process.kill()
        process.wait()


def measure_detection(trials: int, budget: float, say: Callable[[str], None]) -> list[dict[str, object]]:
    """Run trials of every tool at every planted slowdown, in random order within a trial; return one row for each."""
    planted = plant_slowdowns(PLANTED_SLOWDOWNS)
    for share, (extra, slowdown) in planted.items():
        say(f"planted {share:.0%}: {extra} extra elements, measured {slowdown:+.2%}")
    calls: dict[tuple[str, float], list[str]] = defaultdict(list)
    seconds: dict[str, list[float]] = defaultdict(list)
    for trial in range(trials):
        with ABRunner(LaunchConfig(), LaunchConfig()) as sides:  # new interpreters for every trial
            sides.preload(WORK_FUNCTION)
            for share, (extra, _) in random.sample(list(planted.items()), len(planted)):
                for take in random.sample(_build_trials(sides, extra, budget), 4):
                    began = time.monotonic()
                    for tool, call in take().items():
                        calls[tool, share].append(call)
                        seconds[tool].append(time.monotonic() - began)
                verdicts = ", ".join(f"{tool} {calls[tool, share][-1] or '-'}" for tool in TOOLS)
                say(f"trial {trial + 1}/{trials}, {share:.0%}: {verdicts}")
    return [
        {
            "tool": tool,
            "planted": share,
            "measured": planted[share][1],
            "trials": len(calls[tool, share]),
            "slower": calls[tool, share].count("slower"),
            "faster": calls[tool, share].count("faster"),
            "seconds": sum(seconds[tool]) / len(seconds[tool]),
        }
        for tool in TOOLS
        for share in PLANTED_SLOWDOWNS
    ]


def _build_trials(sides: ABRunner, extra: int, budget: float) -> list[Callable[[], dict[str, str]]]:
    """Return one function per tool that takes samples and returns the verdict; pyperf and asv share a function."""

    def judge_within() -> dict[str, str]:
        base, slowed = build_pair(extra)
        interleaved = sample_interleaved({"a": base, "b": slowed}, budget=budget)
        return {TOOLS[0]: judge_ratio(interleaved.ratio("b", "a"), peers.THRESHOLD)}

    def judge_between() -> dict[str, str]:
        series = sides.compare(WORK_FUNCTION, (0,), (extra,), budget=budget)
        return {TOOLS[1]: judge_ratio(series.ratio(), peers.THRESHOLD)}

    def judge_processes() -> dict[str, str]:
        values = peers.sample_processes(extra)
        return {TOOLS[3]: peers.judge_with_pyperf(values), TOOLS[4]: peers.judge_with_asv(values)}

    return [judge_within, judge_between, judge_processes, lambda: {TOOLS[2]: peers.judge_with_torch(extra)}]
