"""Compare `tessera infer --tune` in float32 with peers tuned by hand: interleaved bursts, ratios with intervals."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from parts import limit_to_two_cores

from inference.by_hand import HandTuning, find_best_app_batch
from inference.interleaved import compute_medians, compute_ratios, format_ratio, measure_interleaved
from inference.networks import PLACEMENTS, Effort, export_onnx
from inference.ours import start_best, tune_and_summarise
from inference.peers import COMPILE, EAGER, GEMM, GEMM_SIZE, ONNXRUNTIME, run_benchmark_app, start_gemm
from tessera.models import model_info

OURS, BENCHMARK_APP = "tessera --tune", "benchmark_app"
TARGET_OVER_BEST_PEER, TARGET_OVER_EAGER = 1.0, 1.3
MIN_COMPILE_SHARE = 0.75  # torch.compile below this fraction of the best peer is not tuned further (a minute per size)


def run(networks: Sequence[str], effort: Effort, say: Callable[[str], None]) -> dict[str, Any]:
    results = {}
    with limit_to_two_cores(), tempfile.TemporaryDirectory(prefix="tessera-bench-") as folder:
        for network in networks:
            results[network] = _measure_network(network, export_onnx(network, Path(folder)), effort, say)
            for line in _format_network(network, results[network]):
                say(line)
    lines = [
        "images/s in float32, and Tessera over each peer"
        f" (targets {TARGET_OVER_BEST_PEER}x of the best, {TARGET_OVER_EAGER}x of eager)"
    ]
    lines += [line for network, result in results.items() for line in _format_network(network, result)]
    return {
        "networks": results,
        "targets": {"best peer": TARGET_OVER_BEST_PEER, "torch eager": TARGET_OVER_EAGER},
        "lines": lines,
    }


def _measure_network(network: str, file: Path, effort: Effort, say: Callable[[str], None]) -> dict[str, Any]:
    chosen, summary = tune_and_summarise(network, "32.32", effort, say)
    with ExitStack() as stack:
        sides: dict[str, Callable[[], float]] = {}
        tried: dict[str, Any] = {}
        batch, most, tried[BENCHMARK_APP] = find_best_app_batch(network, file, say)
        sides[BENCHMARK_APP] = partial(run_benchmark_app, network, file, batch)
        for kind in (ONNXRUNTIME, EAGER, COMPILE):
            tuning = HandTuning(kind, network, file, say, least=MIN_COMPILE_SHARE * most if kind == COMPILE else 0.0)
            peer = tuning.run()
            stack.callback(peer.close)
            sides[kind], tried[kind], most = peer.measure_rate, tuning.tried, max(most, tuning.rate)
        ours, gemm = start_best(chosen), start_gemm(PLACEMENTS[0])
        stack.callback(ours.close)
        stack.callback(gemm.close)
        sides |= {OURS: ours.measure_rate, GEMM: gemm.measure_rate}
        rates = measure_interleaved(sides, effort.rounds, lambda text: say(f"{network}: {text}"))
    peak = statistics.median(rates.pop(GEMM)) * 2 * GEMM_SIZE**3
    middle = compute_medians(rates)
    best = max((name for name in rates if name != OURS), key=lambda name: middle[name])
    against = compute_ratios(rates, OURS)
    flops = model_info(network).flops
    return {
        "ours": summary,
        "tried by hand": tried,
        "rates": rates,
        "median": middle,
        "peak": {"GFLOP/s": peak / 1e9, "shares": {name: flops * rate / peak for name, rate in middle.items()}},
        "best peer": best,
        "ratios": against,
        "met": against[best]["ratio"] >= TARGET_OVER_BEST_PEER and against[EAGER]["ratio"] >= TARGET_OVER_EAGER,
    }


def _format_network(network: str, result: dict[str, Any]) -> list[str]:
    middle, shares = result["median"], result["peak"]["shares"]
    peak = f"{result['peak']['GFLOP/s']:.0f} GFLOP/s"
    lines = [
        f"  {network}: {result['ours']['best']}; shares are of a matrix product at the same time, {peak}",
        f"    {OURS:14} {middle[OURS]:7.1f} {shares[OURS]:6.1%}",
    ]
    for name, ratio in result["ratios"].items():
        best = " (best peer)" if name == result["best peer"] else ""
        lines.append(f"    {name:14} {middle[name]:7.1f} {shares[name]:6.1%}   {format_ratio(ratio)}{best}")
    return [*lines, f"    {'met' if result['met'] else 'NOT met'}"]
