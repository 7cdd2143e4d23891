"""Compare the throughput of tuned int8 and tuned float32 in interleaved bursts, and report the top-1 agreement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from parts import limit_to_two_cores

from inference.interleaved import compute_medians, compute_ratios, format_ratio, measure_interleaved
from inference.networks import Effort
from inference.ours import start_best, tune_and_summarise
from tessera.errors import TesseraError

INT8_PRECISION, FLOAT_PRECISION = "int8", "32.32"
TARGET_SPEEDUP, MIN_AGREEMENT = 1.8, 0.95


def run(networks: Sequence[str], effort: Effort, say: Callable[[str], None]) -> dict[str, Any]:
    results = {}
    with limit_to_two_cores():
        for network in networks:
            results[network] = _measure_network(network, effort, say)
    return {
        "networks": results,
        "targets": {"int8": TARGET_SPEEDUP, "top-1": MIN_AGREEMENT},
        "lines": _format_lines(results),
    }


def _measure_network(network: str, effort: Effort, say: Callable[[str], None]) -> dict[str, Any]:
    try:
        chosen = {
            precision: tune_and_summarise(network, precision, effort, say)
            for precision in (INT8_PRECISION, FLOAT_PRECISION)
        }
    except TesseraError as error:  # no engine reaches the required agreement
        return {"refused": str(error), "met": False}
    sides = {precision: start_best(result) for precision, (result, _) in chosen.items()}
    try:
        rates = measure_interleaved({name: side.measure_rate for name, side in sides.items()}, effort.rounds, say)
        agreement = dict(sides[INT8_PRECISION].network.reports[0].agreement or {})
    finally:
        for side in sides.values():
            side.close()
    ratio = compute_ratios(rates, INT8_PRECISION)[FLOAT_PRECISION]
    return {
        "chosen": {precision: about for precision, (_, about) in chosen.items()},
        "median": compute_medians(rates),
        "agreement": agreement,
        "ratio": ratio,
        "met": ratio["ratio"] >= TARGET_SPEEDUP and agreement["top1"] >= MIN_AGREEMENT,
    }


def _format_lines(results: dict[str, Any]) -> list[str]:
    lines = [f"int8 over the best float32 settings (target {TARGET_SPEEDUP}x, top-1 agreement of {MIN_AGREEMENT:.0%})"]
    for network, result in results.items():
        if "refused" in result:
            lines.append(f"  {network:18} refused, NOT met: {result['refused']}")
            continue
        rates = f"{result['median'][INT8_PRECISION]:.1f} of {result['median'][FLOAT_PRECISION]:.1f} images/s"
        met = "met" if result["met"] else "NOT met"
        lines.append(
            f"  {network:18} {rates:26} {format_ratio(result['ratio'])}, top-1 {result['agreement']['top1']:.1%}: {met}"
        )
    return lines
