"""Compute-bound: a chain with many rows of input against the same with everything in memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from phasing.chains import IN_PLACE, chain
from phasing.turns import in_turns, medians, ratio, said, summary, verdict

SIZE, LAYERS, ROWS, ROUNDS = 2048, 32, 1024, 7
OF_RESIDENT = 1.05
STREAMED = {name: {"schedule": name} for name in ("overlapped", "phased")}


def run(say: Callable[[str], None], *, small: bool = False) -> dict[str, Any]:
    size, layers, rows, rounds = (256, 8, 256, 2) if small else (SIZE, LAYERS, ROWS, ROUNDS)
    found: dict[str, Any] = {}
    lines = [f"{layers} layers of {size} x {size} float32, {rows} rows: times the pass with everything in memory"]
    with chain(size, layers) as made:
        x = made.rows(rows)
        for threads in (1, 2):
            torch.set_num_threads(threads)
            for cold in (False, True):
                ways = {"resident": {"schedule": "resident"}} | STREAMED | ({} if cold else IN_PLACE)
                if threads > 1:  # two devices of two threads each are more than there are cores
                    del ways["phased"]
                name = f"{'cold' if cold else 'warm'}, {threads} compute thread{'s' * (threads > 1)}"
                say(f"computing, {name}")
                with made.opened(ways, rows=rows, cold=cold, threads=threads) as models:
                    values = in_turns({one: partial(model, x) for one, model in models.items()}, rounds)
                ratios = {one: ratio(values, one, "resident") for one in ways if one != "resident"}
                found[name] = summary(values, ratios=ratios)
                lines.append(f"  {name}: resident {medians(values)['resident']:.3f} s")
                lines += [
                    f"    {one:18} {said(of)} ({verdict(of['ratio'], OF_RESIDENT)})" for one, of in ratios.items()
                ]
    return {"size": size, "layers": layers, "rows": rows, "found": found, "lines": lines}
