"""Comparison with Hugging Face accelerate, the common tool for weights that do not fit into memory.

The networks are stacks of linear layers with 1 input row (I/O-bound) and 256 rows (balanced), and two ResNets, each
with warm and cold page cache. All variants compute on the same two threads, interleaved in one process with the
system's allocator. accelerate is measured in two forms: `disk_offload`, which writes every tensor to a file of its own,
and reading the same safetensors file (`one file`). Cold, our model reads past the page cache; warm, it uses the page
cache directly (`store="mapped"`), and is also measured with copies (`overlapped`). The peak memory of each variant is
measured in a separate process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from phased.interleaved import build_summary, compare_with_target, compute_medians, compute_ratio, format_ratio
from phased.offload_models import Stack, list_models
from tessera.launch import LaunchConfig, Workers

OUR_VARIANT_BY_CACHE = {"warm": "mapped", "cold": "overlapped"}
RESIDENT, ACCELERATE_VARIANTS = "resident", ("disk_offload", "one file")
ROUNDS = 7
# target speed-up over disk_offload, by input rows and page cache
TARGET_SPEEDUPS = {(1, "warm"): 4.0, (1, "cold"): 2.5, (256, "warm"): 1.5, (256, "cold"): 1.5}
MAX_RATIO_TO_RESIDENT = 1.05
MAX_MEMORY_RATIO = 1.10
TIME_LIMIT_SECONDS = 3600.0


def run(say: Callable[[str], None], *, small: bool = False, rounds: int | None = None) -> dict[str, Any]:
    results: dict[str, Any] = {}
    rounds = rounds or (2 if small else ROUNDS)
    lines = ["speed-up over accelerate in its two forms, and time relative to all weights in memory"]
    for stack in list_models(small):
        for cache in OUR_VARIANT_BY_CACHE:
            name = f"{stack.title}, {cache}"
            say(f"offload, {name}")
            with _open_worker() as workers:
                values = workers.run("phased.offload_worker:time_variants", stack, cache == "cold", rounds)[0]
            peaks = {
                variant: _measure_peak(stack, variant, cache == "cold")
                for variant in (OUR_VARIANT_BY_CACHE[cache], ACCELERATE_VARIANTS[0])
            }
            results[name] = build_summary(values, peaks=peaks)
            lines += _format_lines(name, stack, values, peaks, cache)
    return {"found": results, "lines": lines}


def _open_worker() -> Workers:
    return Workers(LaunchConfig(workers=1, threads=2, allocator="system", time_limit=TIME_LIMIT_SECONDS))


def _measure_peak(stack: Stack, variant: str, cold: bool) -> dict[str, float]:
    with _open_worker() as workers:
        peak: dict[str, float] = workers.run("phased.offload_worker:measure_peak", stack, variant, cold)[0]
    return peak


def _format_lines(
    name: str, stack: Stack, values: dict[str, tuple[float, ...]], peaks: dict[str, dict[str, float]], cache: str
) -> list[str]:
    medians, ours = compute_medians(values), OUR_VARIANT_BY_CACHE[cache]
    lines = [f"  {name}: {', '.join(f'{variant} {seconds:.3f} s' for variant, seconds in medians.items())}"]
    for peer in ACCELERATE_VARIANTS:
        speedup = compute_ratio(values, peer, ours)
        target = (
            1.0 if stack.model or peer != ACCELERATE_VARIANTS[0] else TARGET_SPEEDUPS[stack.rows, cache]
        )  # other comparisons: at least as fast
        lines.append(
            f"    {ours}: {format_ratio(speedup)} times as fast as {peer}"
            f" ({compare_with_target(speedup['ratio'], target, least=True)})"
        )
    slowdown = compute_ratio(values, ours, RESIDENT)
    target_text = f" ({compare_with_target(slowdown['ratio'], MAX_RATIO_TO_RESIDENT)})" if stack.rows == 256 else ""
    lines.append(f"    {ours}: {format_ratio(slowdown)} times as long as in memory{target_text}")
    for variant, peak in peaks.items():
        allowed = peak["budget"] + peak["activations"]
        target_text = f" ({compare_with_target(peak['peak'] / allowed, MAX_MEMORY_RATIO)})" if variant == ours else ""
        lines.append(
            f"    peak memory of {variant}: {peak['peak'] / 1e6:.0f} MB;"
            f" budget {peak['budget'] / 1e6:.0f} MB, activations {peak['activations'] / 1e6:.0f} MB{target_text}"
        )
    return lines
