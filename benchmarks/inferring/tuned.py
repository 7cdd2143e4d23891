"""`tessera infer --tune` at float32 against every peer tuned by hand: one run, bursts in turns, ratios with spread."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from parts import two_cores

from inferring.by_hand import ByHand, best_app_batch
from inferring.networks import PLACES, Effort, onnx_file
from inferring.ours import alive, tuned
from inferring.peers import COMPILE, EAGER, GEMM, GEMM_SIZE, ONNXRUNTIME, benchmark_app, start_gemm
from inferring.turns import in_turns, medians, ratios, said
from tessera.models import model_info

OURS, APP = "tessera --tune", "benchmark_app"
TARGET, TARGET_EAGER = 1.0, 1.3
WORTH_MORE = 0.75  # of the best peer: below this torch.compile, which takes a minute a batch, is not tuned any further


def run(networks: Sequence[str], effort: Effort, say: Callable[[str], None]) -> dict[str, Any]:
    found = {}
    with two_cores(), tempfile.TemporaryDirectory(prefix="tessera-bench-") as folder:
        for network in networks:
            found[network] = _network(network, onnx_file(network, Path(folder)), effort, say)
            for line in _about(network, found[network]):
                say(line)
    lines = [f"images/s at float32, and ours over each peer (targets {TARGET}x of the best, {TARGET_EAGER}x of eager)"]
    lines += [line for network, one in found.items() for line in _about(network, one)]
    return {"networks": found, "targets": {"best peer": TARGET, "torch eager": TARGET_EAGER}, "lines": lines}


def _network(network: str, file: Path, effort: Effort, say: Callable[[str], None]) -> dict[str, Any]:
    chosen, about = tuned(network, "32.32", effort, say)
    with ExitStack() as stack:
        sides: dict[str, Callable[[], float]] = {}
        tried: dict[str, Any] = {}
        batch, most, tried[APP] = best_app_batch(network, file, say)
        sides[APP] = partial(benchmark_app, network, file, batch)
        for kind in (ONNXRUNTIME, EAGER, COMPILE):
            tuning = ByHand(kind, network, file, say, least=WORTH_MORE * most if kind == COMPILE else 0.0)
            peer = tuning.run()
            stack.callback(peer.close)
            sides[kind], tried[kind], most = peer.rate, tuning.tried, max(most, tuning.rate)
        ours, gemm = alive(chosen), start_gemm(PLACES[0])
        stack.callback(ours.close)
        stack.callback(gemm.close)
        sides |= {OURS: ours.rate, GEMM: gemm.rate}
        rates = in_turns(sides, effort.rounds, lambda text: say(f"{network}: {text}"))
    peak = statistics.median(rates.pop(GEMM)) * 2 * GEMM_SIZE**3
    middle = medians(rates)
    best = max((name for name in rates if name != OURS), key=lambda name: middle[name])
    against = ratios(rates, OURS)
    flops = model_info(network).flops
    return {
        "ours": about,
        "tried by hand": tried,
        "rates": rates,
        "median": middle,
        "peak": {"GFLOP/s": peak / 1e9, "shares": {name: flops * rate / peak for name, rate in middle.items()}},
        "best peer": best,
        "ratios": against,
        "met": against[best]["ratio"] >= TARGET and against[EAGER]["ratio"] >= TARGET_EAGER,
    }


def _about(network: str, one: dict[str, Any]) -> list[str]:
    middle, shares = one["median"], one["peak"]["shares"]
    peak = f"{one['peak']['GFLOP/s']:.0f} GFLOP/s"
    lines = [
        f"  {network}: {one['ours']['best']}; shares are of a matrix product at the same time, {peak}",
        f"    {OURS:14} {middle[OURS]:7.1f} {shares[OURS]:6.1%}",
    ]
    for name, ratio in one["ratios"].items():
        best = " (best peer)" if name == one["best peer"] else ""
        lines.append(f"    {name:14} {middle[name]:7.1f} {shares[name]:6.1%}   {said(ratio)}{best}")
    return [*lines, f"    {'met' if one['met'] else 'NOT met'}"]
