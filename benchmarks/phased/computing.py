"""Benchmark of the compute-bound case: a streamed chain with many input rows, compared with all weights in memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from phased.chains import VARIANTS_WITHOUT_COPY, write_chain
from phased.interleaved import (
    build_summary,
    compare_with_target,
    compute_medians,
    compute_ratio,
    format_ratio,
    time_interleaved,
)

LAYER_SIZE, LAYERS, ROWS, ROUNDS = 2048, 32, 1024, 7
MAX_RATIO_TO_RESIDENT = 1.05
STREAMED_VARIANTS = {name: {"schedule": name} for name in ("overlapped", "phased")}


def run(say: Callable[[str], None], *, small: bool = False, rounds: int | None = None) -> dict[str, Any]:
    size, layers, rows, default_rounds = (256, 8, 256, 2) if small else (LAYER_SIZE, LAYERS, ROWS, ROUNDS)
    rounds = rounds or default_rounds
    results: dict[str, Any] = {}
    lines = [f"{layers} layers of {size} x {size} float32, {rows} rows: time relative to all weights in memory"]
    with write_chain(size, layers) as chain:
        x = chain.draw_rows(rows)
        for threads in (1, 2):
            torch.set_num_threads(threads)
            for cold in (False, True):
                variants = (
                    {"resident": {"schedule": "resident"}} | STREAMED_VARIANTS | ({} if cold else VARIANTS_WITHOUT_COPY)
                )
                if threads > 1:  # two devices of two threads each would need more cores than the machine has
                    del variants["phased"]
                name = f"{'cold' if cold else 'warm'}, {threads} compute thread{'s' * (threads > 1)}"
                say(f"computing, {name}")
                with chain.open_variants(variants, rows=rows, cold=cold, threads=threads) as models:
                    values = time_interleaved({variant: partial(model, x) for variant, model in models.items()}, rounds)
                ratios = {v: compute_ratio(values, v, "resident") for v in variants if v != "resident"}
                results[name] = build_summary(values, ratios=ratios)
                lines.append(f"  {name}: resident {compute_medians(values)['resident']:.3f} s")
                for variant, ratio in ratios.items():
                    target = compare_with_target(ratio["ratio"], MAX_RATIO_TO_RESIDENT)
                    lines.append(f"    {variant:18} {format_ratio(ratio)} ({target})")
    return {"size": size, "layers": layers, "rows": rows, "found": results, "lines": lines}
