"""A convolution executed on the grid, every core within its memory, against torch's own with the same threads.

Both take the same images and weights in float32, in one process, in turns. The input lies on the cores and the
weights are laid out before, as between the layers of a network. `auto` is what conv2d does if nothing is said, `search`
the fastest for the chip, which may be in smaller blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tessera import coregrid
from tessera.coregrid.bench import Call
from tessera.coregrid.cases import cases
from tessera.coregrid.problem import Problem
from tessera.measure.interleave import sample_interleaved

SHAPES = {
    "64 -> 64 on 56x56": {"image_size": [56], "in_channels": [64], "out_channels": [64]},
    "512 -> 512 on 7x7": {"image_size": [7], "in_channels": [512], "out_channels": [512]},
}
LAYOUTS = ("auto", "search", "HEIGHT", "BLOCK", "WIDTH")
BATCH, BUDGET, TARGET = 8, 20.0, 1.5


def run(say: Callable[[str], None]) -> dict[str, Any]:
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for name, shape in SHAPES.items():
            for layout in LAYOUTS:
                say(f"execute, {name}, {layout}, {threads} threads")
                row = _compared({**shape, "batch_size": [BATCH], "shard_layout": [layout]})
                if row is not None:
                    found.append({"conv": name, "asked": layout, "threads": threads, **row})
    return {"cases": found, "target": TARGET, "lines": _lines(found)}


def _compared(axes: dict[str, list[Any]]) -> dict[str, Any] | None:
    (case,) = cases(**axes, dtype=["float32"], weights_dtype=["float32"], bias=[False])
    problem = Problem.of(case.params)
    plan = problem.plan()
    if not plan.fits:
        return None
    device = coregrid.open_device(problem.setup.machine)
    try:
        call = Call(device, plan, problem)
        conv = plan.conv
        padding = conv.padding[0][0], conv.padding[1][0]

        def torchs() -> None:
            torch.nn.functional.conv2d(call.images, call.weights, None, conv.stride, padding)

        def ours() -> None:
            call.before()
            call()

        worst = float((call.output() - call.truth()).abs().max() / call.truth().abs().max())
        taken = sample_interleaved({"torch": torchs, "grid": ours}, budget=BUDGET)
        ratio = taken.ratio("grid", "torch")
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
        "relative error": worst,
    }


def _lines(found: list[dict[str, Any]]) -> list[str]:
    lines = [f"executing on the grid, times of torch's conv2d (batch {BATCH}, float32; at most {TARGET} wanted)"]
    for row in found:
        lines.append(
            f"  {row['conv']:18} {row['asked']:7} {row['layout']:7} {row['cores']:3} cores, {row['threads']} threads: "
            f"{row['ratio']:.2f} ({row['low']:.2f} to {row['high']:.2f}), error {row['relative error']:.0e}"
        )
    return lines
