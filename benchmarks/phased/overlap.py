"""Benchmark of the balanced case: times of `phased` and `overlapped` relative to the ideal and to `sequential`.

The ideal is the sum over phases of max(I/O, compute) of a sequential pass in the same round. A call is several passes
in a row, so that weights loaded in advance at the end of a pass are used by the next pass. Warm, a read is a memory
copy by a core, which competes with the product on the other core for memory bandwidth; a mapped file is not copied.
Copied weights are still in the CPU cache, so the ideal can be less than the time of computing from memory (resident).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from phased.chains import VARIANTS_WITHOUT_COPY, compute_ideal, find_balanced_rows, write_chain
from phased.interleaved import (
    build_summary,
    compare_with_target,
    compute_medians,
    compute_ratio,
    format_ratio,
    time_interleaved,
)

LAYER_SIZE, LAYERS, ROUNDS, PASSES = 2048, 32, 25, 4
MAX_RATIO_TO_IDEAL, MAX_RATIO_TO_SEQUENTIAL = 1.10, 0.60
OVERLAPPING_VARIANTS = {"phased": {"schedule": "phased"}, "overlapped": {"schedule": "overlapped"}}


def run(say: Callable[[str], None], *, small: bool = False, rounds: int | None = None) -> dict[str, Any]:
    size, layers, default_rounds, passes = (256, 8, 2, 2) if small else (LAYER_SIZE, LAYERS, ROUNDS, PASSES)
    rounds = rounds or default_rounds
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    lines = [
        f"{layers} layers of {size} x {size} float32, one compute thread, rows chosen so that I/O and compute are equal"
    ]
    with write_chain(size, layers) as chain:
        for cold in (False, True):
            name = "cold" if cold else "warm"
            say(f"overlap, {name}")
            rows = find_balanced_rows(chain, cold=cold)
            x = chain.draw_rows(rows)
            overlapping = OVERLAPPING_VARIANTS if cold else OVERLAPPING_VARIANTS | VARIANTS_WITHOUT_COPY
            variants = {"sequential": {"schedule": "sequential"}} | overlapping
            with chain.open_variants(variants, rows=rows, cold=cold, threads=1) as models:
                ideals: list[float] = []
                expected = models["sequential"](x)
                for schedule in overlapping:
                    assert torch.equal(models[schedule](x), expected), schedule

                def run_sequential(models: Any = models, x: Any = x, ideals: list[float] = ideals) -> None:
                    ideals.append(sum(compute_ideal(models["sequential"], x) for _ in range(passes)))

                def repeat_pass(schedule: str, models: Any = models, x: Any = x) -> Callable[[], None]:
                    return lambda: [models[schedule](x) for _ in range(passes)] and None

                calls = {"sequential": run_sequential, **{variant: repeat_pass(variant) for variant in overlapping}}
                values = time_interleaved(calls, rounds)
            values["ideal"] = tuple(ideals[1:])  # without the warm-up call, as for the other variants
            ratios = {
                variant: {base: compute_ratio(values, variant, base) for base in ("ideal", "sequential")}
                for variant in overlapping
            }
            results[name] = build_summary(values, rows=rows, passes=passes, ratios=ratios)
            medians = compute_medians(values)
            lines.append(
                f"  {name}, {rows} rows: ideal {medians['ideal'] / passes:.4f} s a pass,"
                f" sequential {medians['sequential'] / passes:.4f} s"
            )
            for variant in overlapping:
                of_ideal, of_sequential = ratios[variant]["ideal"], ratios[variant]["sequential"]
                if variant == "resident":
                    lines.append(f"    {variant:18} {format_ratio(of_ideal)} of the ideal (no loading)")
                    continue
                lines.append(
                    f"    {variant:18} {format_ratio(of_ideal)} of the ideal"
                    f" ({compare_with_target(of_ideal['ratio'], MAX_RATIO_TO_IDEAL)}),"
                    f" {format_ratio(of_sequential)} of sequential"
                    f" ({compare_with_target(of_sequential['ratio'], MAX_RATIO_TO_SEQUENTIAL)})"
                )
    return {"size": size, "layers": layers, "found": results, "lines": lines}
