"""I/O-bound: a chain with one row of input against the best plain reader of the same file, which computes nothing.

Cold, both read past the page cache. Warm, a plain reader copies from the page cache; there a network that is mapped
copies nothing, and one row that is computed on one thread with everything in memory is the limit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from phasing.chains import IN_PLACE, Chain, chain
from phasing.plain_reader import best_reader
from phasing.turns import in_turns, summary, verdict
from tessera.phased import PhasedModel

SIZE, LAYERS, ROUNDS, PASSES = 4096, 32, 9, 2
OF_READER = 0.90
PROMISED = ("overlapped", "phased")
READER = "plain reader"


def run(say: Callable[[str], None], *, small: bool = False) -> dict[str, Any]:
    size, layers, rounds, passes = (512, 8, 2, 2) if small else (SIZE, LAYERS, ROUNDS, PASSES)
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    lines = [f"{layers} layers of {size} x {size} float32, one row: bytes/s as a share of the best plain reader's"]
    with chain(size, layers) as made:
        for cold in (False, True):
            name = "cold" if cold else "warm"
            say(f"streaming, {name}")
            seen = _shares(made, cold=cold, rounds=rounds, passes=passes)
            found[name] = seen
            lines.append(f"  {name}: plain reader {seen['reader rate'] / 1e9:.2f} GB/s ({seen['reader']})")
            for one, (middle, low, high) in seen["shares"].items():
                promised = f" ({verdict(middle, OF_READER, least=True)})" if cold and one in PROMISED else ""
                lines.append(f"    {one:18} {middle:.3f} ({low:.3f} to {high:.3f}){promised}")
    return {"size": size, "layers": layers, "found": found, "lines": lines}


def _shares(made: Chain, *, cold: bool, rounds: int, passes: int) -> dict[str, Any]:
    x = made.rows(1)

    def several(model: PhasedModel) -> Callable[[], object]:
        return lambda: [model(x) for _ in range(passes)]

    with (
        best_reader(made.path, direct=cold, room=made.budget) as (reader, rates),
        made.opened(ways_of(cold), rows=1, cold=cold, threads=1) as models,
    ):
        ways = {one: several(model) for one, model in models.items()}
        values = in_turns(ways | {READER: lambda: [reader.read() for _ in range(passes)]}, rounds)
        moved = dict.fromkeys(ways, made.nbytes) | {READER: reader.nbytes}
        how = f"{reader.in_flight} reads of {reader.block >> 20} MB in flight"
    of = {one: [passes * moved[one] / taken for taken in values[one]] for one in values}
    shares = {one: _middle([a / b for a, b in zip(of[one], of[READER], strict=True)]) for one in ways}
    tried = {f"{in_flight} x {block >> 20} MB": rate for (block, in_flight), rate in rates.items()}
    return summary(values, shares=shares, **{"reader": how, "reader rate": _middle(of[READER])[0], "tried": tried})


def ways_of(cold: bool) -> dict[str, dict[str, Any]]:
    """What is opened, by name: schedules, and where it is warm the ones that copy nothing."""
    ways = {name: {"schedule": name} for name in ("overlapped", "phased", "sequential")}
    if not cold:
        ways |= IN_PLACE
    return ways


def _middle(values: list[float]) -> tuple[float, float, float]:
    """The middle one, the lowest and the highest."""
    found = sorted(values)
    return found[len(found) // 2], found[0], found[-1]
