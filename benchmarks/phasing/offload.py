"""Against accelerate, which most users take for weights that do not fit: `disk_offload`, and the same from one file.

Stacks of linear layers with one row (I/O-bound) and 256 rows (balanced) of input, warm and cold, and two ResNets. All
ways compute on the same two threads, in one process with the system's allocator, in turns. accelerate is taken in both
of its forms: `disk_offload`, which writes every tensor to a file of its own, and is what the targets are of; and the
same from the very safetensors file that we read, than which ours must not be slower. Ours reads past the page cache
where it is cold; where it is warm it computes from the pages as they lie there (`store="mapped"`), and is also shown
copying them (`overlapped`). The peak memory of each is taken in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from phasing.offload_models import Stack, models
from phasing.turns import medians, ratio, said, summary, verdict
from tessera.launch import LaunchConfig, Workers

OURS = {"warm": "mapped", "cold": "overlapped"}
RESIDENT, PEERS = "resident", ("disk_offload", "one file")
ROUNDS = 7
# how many times faster than disk_offload: by rows and by whether the page cache is warm
FASTER = {(1, "warm"): 4.0, (1, "cold"): 2.5, (256, "warm"): 1.5, (256, "cold"): 1.5}
OF_RESIDENT = 1.05
MEMORY = 1.10
TIME_LIMIT = 3600.0


def run(say: Callable[[str], None], *, small: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = {}
    rounds = 2 if small else ROUNDS
    lines = ["times as fast as accelerate in its two forms, and times as long as everything in memory"]
    for stack in models(small):
        for cache in OURS:
            name = f"{stack.title}, {cache}"
            say(f"offload, {name}")
            with _worker() as workers:
                values = workers.run("phasing.offload_worker:times", stack, cache == "cold", rounds)[0]
            peaks = {way: _peak(stack, way, cache == "cold") for way in (OURS[cache], PEERS[0])}
            found[name] = summary(values, peaks=peaks)
            lines += _lines(name, stack, values, peaks, cache)
    return {"found": found, "lines": lines}


def _worker() -> Workers:
    return Workers(LaunchConfig(workers=1, threads=2, allocator="system", time_limit=TIME_LIMIT))


def _peak(stack: Stack, way: str, cold: bool) -> dict[str, float]:
    with _worker() as workers:
        peak: dict[str, float] = workers.run("phasing.offload_worker:peak", stack, way, cold)[0]
    return peak


def _lines(
    name: str, stack: Stack, values: dict[str, tuple[float, ...]], peaks: dict[str, dict[str, float]], cache: str
) -> list[str]:
    middle, ours = medians(values), OURS[cache]
    lines = [f"  {name}: {', '.join(f'{way} {taken:.3f} s' for way, taken in middle.items())}"]
    for peer in PEERS:
        faster = ratio(values, peer, ours)
        wanted = 1.0 if stack.model or peer != PEERS[0] else FASTER[stack.rows, cache]  # elsewhere: never slower
        lines.append(
            f"    {ours}: {said(faster)} times as fast as {peer} ({verdict(faster['ratio'], wanted, least=True)})"
        )
    slower = ratio(values, ours, RESIDENT)
    promised = f" ({verdict(slower['ratio'], OF_RESIDENT)})" if stack.rows == 256 else ""
    lines.append(f"    {ours}: {said(slower)} times as long as in memory{promised}")
    for way, peak in peaks.items():
        allowed = peak["budget"] + peak["activations"]
        kept = f" ({verdict(peak['peak'] / allowed, MEMORY)})" if way == ours else ""
        lines.append(
            f"    peak memory of {way}: {peak['peak'] / 1e6:.0f} MB;"
            f" budget {peak['budget'] / 1e6:.0f} MB, activations {peak['activations'] / 1e6:.0f} MB{kept}"
        )
    return lines
