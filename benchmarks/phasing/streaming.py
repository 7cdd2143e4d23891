"""I/O-bound: a chain with one row of input against the best plain reader of the same file, which computes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from phasing.chains import chain, opened
from phasing.plain_reader import best_reader
from phasing.turns import in_turns, summary, verdict

SIZE, LAYERS, ROUNDS, PASSES = 4096, 32, 9, 2
OF_READER = 0.90
SCHEDULES = ("overlapped", "phased", "sequential")


def run(say: Callable[[str], None], *, small: bool = False) -> dict[str, Any]:
    size, layers, rounds, passes = (512, 8, 2, 2) if small else (SIZE, LAYERS, ROUNDS, PASSES)
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    lines = [f"{layers} layers of {size} x {size} float32, one row: bytes/s as a share of the best plain reader's"]
    with chain(size, layers) as made:
        x = made.rows(1)
        for cold in (False, True):
            name = "cold" if cold else "warm"
            say(f"streaming, {name}")
            with (
                best_reader(made.path, direct=cold) as reader,
                opened(made, SCHEDULES, rows=1, cold=cold, threads=1) as models,
            ):
                ways: dict[str, Callable[[], object]] = {
                    one: lambda one=one: [models[one](x) for _ in range(passes)] for one in SCHEDULES
                }
                ways["plain reader"] = lambda: [reader.read() for _ in range(passes)]
                values = in_turns(ways, rounds)
                read, how = reader.nbytes, f"{reader.in_flight} reads of {reader.block >> 20} MB in flight"
            rates = {one: [passes * made.nbytes / taken for taken in values[one]] for one in SCHEDULES}
            rates["plain reader"] = [passes * read / taken for taken in values["plain reader"]]
            shares = {one: _shares(rates[one], rates["plain reader"]) for one in SCHEDULES}
            found[name] = summary(values, rates=rates, shares=shares, reader=how)
            best = sorted(rates["plain reader"])[len(rates["plain reader"]) // 2]
            lines.append(f"  {name}: plain reader {best / 1e9:.2f} GB/s ({how})")
            for one in SCHEDULES:
                middle, low, high = shares[one]
                promised = f" ({verdict(middle, OF_READER, least=True)})" if one != "sequential" else ""
                lines.append(f"    {one:11} {middle:.3f} ({low:.3f} to {high:.3f}){promised}")
    return {"size": size, "layers": layers, "found": found, "lines": lines}


def _shares(rates: list[float], base: list[float]) -> tuple[float, float, float]:
    """Of each round; the middle one, the lowest and the highest."""
    found = sorted(a / b for a, b in zip(rates, base, strict=True))
    return found[len(found) // 2], found[0], found[-1]
