"""int8 against the best of float32, both as a tuning finds them, in turns; with the agreement of the answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from parts import two_cores

from inferring.networks import Effort
from inferring.ours import alive, tuned
from inferring.turns import in_turns, medians, ratios, said
from tessera.errors import TesseraError

INT8, FLOAT = "int8", "32.32"
TARGET, LEAST_AGREEMENT = 1.8, 0.95


def run(networks: Sequence[str], effort: Effort, say: Callable[[str], None]) -> dict[str, Any]:
    found = {}
    with two_cores():
        for network in networks:
            found[network] = _network(network, effort, say)
    return {"networks": found, "targets": {"int8": TARGET, "top-1": LEAST_AGREEMENT}, "lines": _lines(found)}


def _network(network: str, effort: Effort, say: Callable[[str], None]) -> dict[str, Any]:
    try:
        chosen = {precision: tuned(network, precision, effort, say) for precision in (INT8, FLOAT)}
    except TesseraError as error:  # no engine reaches the agreement
        return {"refused": str(error), "met": False}
    sides = {precision: alive(one) for precision, (one, _) in chosen.items()}
    try:
        rates = in_turns({name: side.rate for name, side in sides.items()}, effort.rounds, say)
        agreement = dict(sides[INT8].on.loaded[0].agreement or {})
    finally:
        for side in sides.values():
            side.close()
    ratio = ratios(rates, INT8)[FLOAT]
    return {
        "chosen": {precision: about for precision, (_, about) in chosen.items()},
        "median": medians(rates),
        "agreement": agreement,
        "ratio": ratio,
        "met": ratio["ratio"] >= TARGET and agreement["top1"] >= LEAST_AGREEMENT,
    }


def _lines(found: dict[str, Any]) -> list[str]:
    lines = [f"int8 over the best of float32 (target {TARGET}x, top-1 agreement of {LEAST_AGREEMENT:.0%})"]
    for network, one in found.items():
        if "refused" in one:
            lines.append(f"  {network:18} refused, NOT met: {one['refused']}")
            continue
        rates = f"{one['median'][INT8]:.1f} of {one['median'][FLOAT]:.1f} images/s"
        met = "met" if one["met"] else "NOT met"
        lines.append(f"  {network:18} {rates:26} {said(one['ratio'])}, top-1 {one['agreement']['top1']:.1%}: {met}")
    return lines
