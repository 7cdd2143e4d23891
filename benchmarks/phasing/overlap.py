"""I/O and compute equal: how near phased and overlapped come to the ideal, and how far below one after the other.

The ideal is the sum over phases of max(I/O, compute), of a sequential pass in the same round: each by itself. A call
is several passes in a row, as in use: what is loaded ahead at the end of one serves the next. Warm, a read is a copy
by a core from memory to memory, and keeps the other core's product waiting for memory; a mapped file is read in place.
What was just copied is still in the cache, so that the ideal is less than what computing takes from memory (resident).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from phasing.chains import IN_PLACE, balanced_rows, chain, ideal
from phasing.turns import in_turns, medians, ratio, said, summary, verdict

SIZE, LAYERS, ROUNDS, PASSES = 2048, 32, 25, 4
OF_IDEAL, OF_SEQUENTIAL = 1.10, 0.60
OVERLAPPING = {"phased": {"schedule": "phased"}, "overlapped": {"schedule": "overlapped"}}


def run(say: Callable[[str], None], *, small: bool = False) -> dict[str, Any]:
    size, layers, rounds, passes = (256, 8, 2, 2) if small else (SIZE, LAYERS, ROUNDS, PASSES)
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    lines = [f"{layers} layers of {size} x {size} float32, one compute thread, rows so that I/O and compute are equal"]
    with chain(size, layers) as made:
        for cold in (False, True):
            name = "cold" if cold else "warm"
            say(f"overlap, {name}")
            rows = balanced_rows(made, cold=cold)
            x = made.rows(rows)
            overlapping = OVERLAPPING if cold else OVERLAPPING | IN_PLACE
            every = {"sequential": {"schedule": "sequential"}} | overlapping
            with made.opened(every, rows=rows, cold=cold, threads=1) as models:
                ideals: list[float] = []
                expected = models["sequential"](x)
                for schedule in overlapping:
                    assert torch.equal(models[schedule](x), expected), schedule

                def sequential(models: Any = models, x: Any = x, ideals: list[float] = ideals) -> None:
                    ideals.append(sum(ideal(models["sequential"], x) for _ in range(passes)))

                def several(schedule: str, models: Any = models, x: Any = x) -> Callable[[], None]:
                    return lambda: [models[schedule](x) for _ in range(passes)] and None

                ways = {"sequential": sequential, **{one: several(one) for one in overlapping}}
                values = in_turns(ways, rounds)
            values["ideal"] = tuple(ideals[1:])  # as with the others, not the first
            ratios = {one: {base: ratio(values, one, base) for base in ("ideal", "sequential")} for one in overlapping}
            found[name] = summary(values, rows=rows, passes=passes, ratios=ratios)
            middle = medians(values)
            lines.append(
                f"  {name}, {rows} rows: ideal {middle['ideal'] / passes:.4f} s a pass,"
                f" sequential {middle['sequential'] / passes:.4f} s"
            )
            for one in overlapping:
                of_ideal, of_sequential = ratios[one]["ideal"], ratios[one]["sequential"]
                if one == "resident":
                    lines.append(f"    {one:18} {said(of_ideal)} of the ideal: it loads nothing")
                    continue
                lines.append(
                    f"    {one:18} {said(of_ideal)} of the ideal ({verdict(of_ideal['ratio'], OF_IDEAL)}),"
                    f" {said(of_sequential)} of sequential ({verdict(of_sequential['ratio'], OF_SEQUENTIAL)})"
                )
    return {"size": size, "layers": layers, "found": found, "lines": lines}
