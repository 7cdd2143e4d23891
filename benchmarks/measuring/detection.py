"""Detection power: how often each tool finds a planted slowdown, and how often it finds one that is not there."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from measuring import peers
from measuring.work import pair, plant
from tessera.launch import LaunchConfig
from tessera.launch.alternate import Alternator
from tessera.measure.interleave import sample_interleaved
from tessera.measure.verdict import verdict_of

SHARES = (0.0, 0.02, 0.05, 0.10)
TOOLS = ("tessera, one process", "tessera, two interpreters", "torch.utils.benchmark", "pyperf", "asv")
WORK = "measuring.work:make_work"
BUSY = "import numpy as n; a = n.ones(1 << 22); b = a.copy()\nwhile True: b[:] = a"


@contextmanager
def busy_core(core: int) -> Iterator[None]:
    """A process that computes and moves memory on another core until the block ends."""
    process = subprocess.Popen([sys.executable, "-c", BUSY], preexec_fn=lambda: os.sched_setaffinity(0, {core}))
    try:
        time.sleep(1.0)
        yield
    finally:
        process.kill()
        process.wait()


def detection(trials: int, budget: float, say: Callable[[str], None]) -> list[dict[str, object]]:
    """Trials of every tool at every share, in a random order within each trial."""
    planted = plant(SHARES)
    for share, (extra, found) in planted.items():
        say(f"planted {share:.0%}: {extra} extra elements, measured {found:+.2%}")
    calls: dict[tuple[str, float], list[str]] = defaultdict(list)
    seconds: dict[str, list[float]] = defaultdict(list)
    for trial in range(trials):
        with Alternator(LaunchConfig(), LaunchConfig()) as sides:  # new interpreters for every trial
            sides.prepare(WORK)
            for share, (extra, _) in random.sample(list(planted.items()), len(planted)):
                for take in random.sample(_tools(sides, extra, budget), 4):
                    began = time.monotonic()
                    for tool, call in take().items():
                        calls[tool, share].append(call)
                        seconds[tool].append(time.monotonic() - began)
                said = ", ".join(f"{tool} {calls[tool, share][-1] or '-'}" for tool in TOOLS)
                say(f"trial {trial + 1}/{trials}, {share:.0%}: {said}")
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
        for share in SHARES
    ]


def _tools(sides: Alternator, extra: int, budget: float) -> list[Callable[[], dict[str, str]]]:
    """Each takes its samples and says what its tools call them; pyperf and asv judge the same samples."""

    def within() -> dict[str, str]:
        base, more = pair(extra)
        found = sample_interleaved({"a": base, "b": more}, budget=budget)
        return {TOOLS[0]: verdict_of(found.ratio("b", "a"), peers.THRESHOLD)}

    def between() -> dict[str, str]:
        found = sides.compare(WORK, (0,), (extra,), budget=budget)
        return {TOOLS[1]: verdict_of(found.ratio(), peers.THRESHOLD)}

    def processes() -> dict[str, str]:
        values = peers.process_values(extra)
        return {TOOLS[3]: peers.pyperf_compare(values), TOOLS[4]: peers.asv_rule(values)}

    return [within, between, processes, lambda: {TOOLS[2]: peers.torch_medians(extra)}]
