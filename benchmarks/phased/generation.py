"""Repeated passes compared with accelerate: text generation, diffusion steps and image networks.

A GPT-2 of 1.4 GB (float32) and a Llama of 4 GB (bfloat16) generate 32 tokens, a diffusion UNet makes 10 steps, and
ViT-L and ResNet-152 compute one image. Weights are random. `PhasedModel` reads the safetensors file with a budget of a
quarter of the weights; accelerate's `disk_offload` reads a file for every tensor, and `cpu_offload` holds all weights
in memory. Each engine runs in a process of its own, with two threads. The engines take turns of a few passes, in random
order; a ratio is taken within a round of turns. Warm: the files are in the page cache. Cold: they are dropped from the
page cache before every pass, which does not concern `cpu_offload`. The first round is not counted; it includes the
prompt, and the learning of the order. Results are stored after every subject and page cache.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from zoo_run import make_worker_env, prepare_environment

from phased.generation_subjects import Subject, list_subjects
from phased.interleaved import compare_with_target, compute_medians, compute_ratio, format_ratio
from tessera.errors import BenchmarkFailed

BUDGET_DIVISOR = 4
ENGINES_BY_CACHE = {"warm": ("phased", "disk_offload", "cpu_offload"), "cold": ("phased", "disk_offload")}
# target speed-up over disk_offload for the language models, by page cache; other comparisons: at least as fast
TARGET_SPEEDUPS = {"warm": 4.0, "cold": 2.5}
LANGUAGE_MODELS = ("gpt2", "llama")
SMALL_SUBJECTS = ("gpt2", "resnet")
TOLERANCE = 1e-3  # of the results of two engines; tokens are equal


def run(say: Callable[[str], None], *, small: bool = False, rounds: int | None = None) -> Iterator[dict[str, Any]]:
    python = prepare_environment(say)
    results: dict[str, Any] = {}
    lines = ["speed-up over accelerate with a budget of a quarter of the weights; peak memory of the process"]
    for name, subject in list_subjects(small).items():
        if small and name not in SMALL_SUBJECTS:
            continue
        with tempfile.TemporaryDirectory(prefix="tessera-bench-") as folder:
            say(f"generation, {subject.title}: writing its weights")
            worker = _start(python, "write", name, small, folder)
            size = json.loads(worker.communicate()[0].splitlines()[-1])["bytes"]
            for cache, engines in ENGINES_BY_CACHE.items():
                say(f"generation, {subject.title}, {cache}")
                outcome = _compare(python, name, subject, small, Path(folder), size, cache, engines, rounds)
                results[f"{subject.title}, {cache}"] = outcome
                lines += _format_lines(name, subject, size, cache, outcome)
                yield {"found": results, "lines": lines}


def _compare(
    python: Path,
    name: str,
    subject: Subject,
    small: bool,
    folder: Path,
    size: int,
    cache: str,
    engines: tuple[str, ...],
    rounds: int | None,
) -> dict[str, Any]:
    """Run the engines in turns; return the seconds per pass of every round, and the peak memory of every engine."""
    budget = str(size // BUDGET_DIVISOR)
    workers = {}
    try:
        for engine in engines:
            workers[engine] = _start(python, "run", name, small, str(folder), engine, cache, budget)
        for engine in engines:
            _read(workers[engine], engine)
        turns = max(2, subject.passes // subject.turn)
        turns = turns if rounds is None else min(turns, rounds + 1)
        seconds: dict[str, list[float]] = {engine: [] for engine in engines}
        last: dict[str, dict[str, Any]] = {}
        for number in range(turns):
            for engine in random.sample(engines, len(engines)):
                stdin = workers[engine].stdin
                assert stdin is not None
                stdin.write("turn\n")
                stdin.flush()
                last[engine] = _read(workers[engine], engine)
                if number:
                    seconds[engine].append(sum(last[engine]["seconds"]) / subject.turn)
    finally:
        for worker in workers.values():
            worker.kill()
            worker.wait()
    for engine in engines[1:]:
        for ours, theirs in zip(last["phased"]["results"], last[engine]["results"], strict=True):
            if not abs(ours - theirs) <= TOLERANCE * abs(theirs):
                raise BenchmarkFailed(f"{subject.title}: the results of phased and {engine} differ: {ours}, {theirs}")
    return {
        "seconds": {engine: tuple(values) for engine, values in seconds.items()},
        "peaks": {engine: last[engine]["peak"] for engine in engines},
        "bytes": size,
    }


def _start(python: Path, mode: str, name: str, small: bool, *arguments: str) -> subprocess.Popen[str]:
    script = str(Path(__file__).with_name("generation_worker.py"))
    return subprocess.Popen(
        [str(python), script, mode, name, "small" if small else "full", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None if os.environ.get("TESSERA_BENCH_DEBUG") else subprocess.DEVNULL,
        text=True,
        env=make_worker_env() | {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"},
    )


def _read(worker: subprocess.Popen[str], engine: str) -> dict[str, Any]:
    assert worker.stdout is not None
    for line in worker.stdout:
        if line.startswith("{"):
            answer: dict[str, Any] = json.loads(line)
            return answer
    raise BenchmarkFailed(f"the process of {engine} ended; TESSERA_BENCH_DEBUG=1 shows its messages")


def _format_lines(name: str, subject: Subject, size: int, cache: str, outcome: Mapping[str, Any]) -> list[str]:
    values, peaks = outcome["seconds"], outcome["peaks"]
    medians = ", ".join(f"{engine} {seconds:.3f} s" for engine, seconds in compute_medians(values).items())
    lines = [f"  {subject.title} ({size / 1e6:.0f} MB), {cache}, per pass: {medians}"]
    for peer in list(values)[1:]:
        speedup = compute_ratio(values, peer, "phased")
        strict = peer == "disk_offload" and name in LANGUAGE_MODELS
        target = compare_with_target(speedup["ratio"], TARGET_SPEEDUPS[cache] if strict else 1.0, least=True)
        lines.append(f"    {format_ratio(speedup)} times as fast as {peer} ({target})")
    memory = ", ".join(f"{engine} {peak / 1e6:.0f} MB" for engine, peak in peaks.items())
    least = min(peak for engine, peak in peaks.items() if engine != "phased")
    lines.append(f"    peak memory: {memory} ({compare_with_target(peaks['phased'] / least, 1.0)})")
    return lines
