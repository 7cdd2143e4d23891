"""Execution time of a convolution on the core grid, relative to torch's `conv2d` with the same threads.

Core grid and torch compute the same float32 convolution in one process; their calls are interleaved. Sharding the input
and preparing the weights are not timed. `auto` is the default plan of `conv2d`; `search` is the plan with the shortest
predicted time on the chip, which may have smaller blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tessera import coregrid
from tessera.coregrid.bench import ConvCall
from tessera.coregrid.cases import cases
from tessera.coregrid.problem import ConvProblem
from tessera.measure.interleave import sample_interleaved

AXES_BY_CONVOLUTION = {
    "64 -> 64 on 56x56": {"image_size": [56], "in_channels": [64], "out_channels": [64]},
    "512 -> 512 on 7x7": {"image_size": [7], "in_channels": [512], "out_channels": [512]},
}
LAYOUTS = ("auto", "search", "HEIGHT", "BLOCK", "WIDTH")
BATCH_SIZE, BUDGET_SECONDS, TARGET_RATIO = 8, 20.0, 1.5


def run(say: Callable[[str], None]) -> dict[str, Any]:
    rows = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for name, shape in AXES_BY_CONVOLUTION.items():
            for layout in LAYOUTS:
                say(f"execute, {name}, {layout}, {threads} threads")
                row = _compare_with_torch({**shape, "batch_size": [BATCH_SIZE], "shard_layout": [layout]})
                if row is not None:
                    rows.append({"conv": name, "asked": layout, "threads": threads, **row})
    return {"cases": rows, "target": TARGET_RATIO, "lines": _format_rows(rows)}


def _compare_with_torch(axes: dict[str, list[Any]]) -> dict[str, Any] | None:
    (case,) = cases(**axes, dtype=["float32"], weights_dtype=["float32"], bias=[False])
    problem = ConvProblem.of(case.params)
    plan = problem.plan()
    if not plan.fits:
        return None
    device = coregrid.open_device(problem.setup.machine)
    try:
        call = ConvCall(device, plan, problem)
        conv = plan.conv
        padding = conv.padding[0][0], conv.padding[1][0]

        def run_torch() -> None:
            torch.nn.functional.conv2d(call.images, call.weights, None, conv.stride, padding)

        def run_grid() -> None:
            call.prepare_input()
            call()

        relative_error = float(
            (call.compute_output() - call.compute_reference()).abs().max() / call.compute_reference().abs().max()
        )
        samples = sample_interleaved({"torch": run_torch, "grid": run_grid}, budget=BUDGET_SECONDS)
        ratio = samples.ratio("grid", "torch")
    finally:
        device.close()
    return {
        "layout": str(plan.layout),
        "cores": plan.sharding.cores,
        "slices": len(plan.slices),
        "high_water": plan.high_water,
        "ratio": ratio.value,
        "low": ratio.low,
        "high": ratio.high,
        "relative error": relative_error,
    }


def _format_rows(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        f"execution on the core grid relative to torch's conv2d (batch {BATCH_SIZE}, float32; limit {TARGET_RATIO})"
    ]
    for row in rows:
        lines.append(
            f"  {row['conv']:18} {row['asked']:7} {row['layout']:7} {row['cores']:3} cores, {row['threads']} threads: "
            f"{row['ratio']:.2f} ({row['low']:.2f} to {row['high']:.2f}), error {row['relative error']:.0e}"
        )
    return lines
