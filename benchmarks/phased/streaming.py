"""Benchmark of the I/O-bound case: a chain with one input row, compared with the fastest plain reader of its file.

Cold, both read past the page cache. Warm, the plain reader copies from the page cache and a mapped network copies
nothing; the upper limit is then one row computed on one thread with all weights in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from phased.chains import VARIANTS_WITHOUT_COPY, Chain, write_chain
from phased.interleaved import build_summary, compare_with_target, time_interleaved
from phased.plain_reader import open_fastest_reader
from tessera.phased import PhasedModel

LAYER_SIZE, LAYERS, ROUNDS, PASSES = 4096, 32, 9, 2
MIN_SHARE_OF_READER = 0.90
VARIANTS_WITH_TARGET = ("overlapped", "phased")
READER = "plain reader"


def run(say: Callable[[str], None], *, small: bool = False, rounds: int | None = None) -> dict[str, Any]:
    size, layers, default_rounds, passes = (512, 8, 2, 2) if small else (LAYER_SIZE, LAYERS, ROUNDS, PASSES)
    rounds = rounds or default_rounds
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    lines = [f"{layers} layers of {size} x {size} float32, one row: bytes/s relative to the fastest plain reader"]
    with write_chain(size, layers) as chain:
        for cold in (False, True):
            name = "cold" if cold else "warm"
            say(f"streaming, {name}")
            shares = _measure_shares(chain, cold=cold, rounds=rounds, passes=passes)
            results[name] = shares
            lines.append(f"  {name}: plain reader {shares['reader rate'] / 1e9:.2f} GB/s ({shares['reader']})")
            for variant, (median, low, high) in shares["shares"].items():
                target = (
                    f" ({compare_with_target(median, MIN_SHARE_OF_READER, least=True)})"
                    if cold and variant in VARIANTS_WITH_TARGET
                    else ""
                )
                lines.append(f"    {variant:18} {median:.3f} ({low:.3f} to {high:.3f}){target}")
    return {"size": size, "layers": layers, "found": results, "lines": lines}


def _measure_shares(chain: Chain, *, cold: bool, rounds: int, passes: int) -> dict[str, Any]:
    x = chain.draw_rows(1)

    def repeat_pass(model: PhasedModel) -> Callable[[], object]:
        return lambda: [model(x) for _ in range(passes)]

    with (
        open_fastest_reader(chain.path, direct=cold, memory_bytes=chain.budget) as (reader, rates),
        chain.open_variants(list_variants(cold), rows=1, cold=cold, threads=1) as models,
    ):
        calls = {variant: repeat_pass(model) for variant, model in models.items()}
        values = time_interleaved(calls | {READER: lambda: [reader.read() for _ in range(passes)]}, rounds)
        moved = dict.fromkeys(calls, chain.nbytes) | {READER: reader.nbytes}
        description = f"{reader.in_flight} reads of {reader.block >> 20} MB in flight"
    rates_of = {name: [passes * moved[name] / seconds for seconds in values[name]] for name in values}
    shares = {
        name: _compute_range([a / b for a, b in zip(rates_of[name], rates_of[READER], strict=True)]) for name in calls
    }
    tried = {f"{in_flight} x {block >> 20} MB": rate for (block, in_flight), rate in rates.items()}
    reader_rate = _compute_range(rates_of[READER])[0]
    return build_summary(values, shares=shares, **{"reader": description, "reader rate": reader_rate, "tried": tried})


def list_variants(cold: bool) -> dict[str, dict[str, Any]]:
    """Return the options of the variants by name: the schedules and, if warm, the variants without copies."""
    variants = {name: {"schedule": name} for name in ("overlapped", "phased", "sequential")}
    if not cold:
        variants |= VARIANTS_WITHOUT_COPY
    return variants


def _compute_range(values: list[float]) -> tuple[float, float, float]:
    """Return the median, the lowest and the highest value."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2], ordered[0], ordered[-1]
