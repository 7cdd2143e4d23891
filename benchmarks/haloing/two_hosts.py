"""How much of an exchange between two hosts is hidden behind the convolution that it serves.

Two network namespaces of this machine stand for the hosts, joined by a wire; each has one rank on a core of its own,
and gloo carries the borders. `tessera halo compute` times the exchange alone, and the convolution with it: one after
the other, and overlapped. Hidden is what overlapping saves, as a share of the exchange.

What a byte takes of the two cores (gloo, TCP, and a process that plays the wire) cannot be hidden behind work on the
same cores. On a slower wire it is a smaller part of an exchange.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.parallel.two_hosts import NotAllowed, TwoHosts

# Images, their size, channels in and out, kernel: 3x3 convolutions that end a detector's pyramid (256 channels, four
# numbers for each of nine boxes). Few outputs read many inputs there, so that the exchange is a good part of the time,
# and large enough that it is the wire that takes it. The last is a size of the other parts, too.
WIRES = {  # microseconds and Gbit/s each way
    (200, 1.0): ((8, 64, 256, 36, 3), (16, 32, 256, 36, 3), (1, 512, 16, 16, 3)),
    (1000, 0.1): ((8, 64, 256, 36, 3), (2, 128, 256, 36, 3), (1, 512, 16, 16, 3)),
}
OVERLAPS = ("split", "recompute")
LAUNCHES = 3
PROMISED = 0.80


def run(say: Callable[[str], None]) -> dict[str, Any]:
    """Measure and say it; `lines` is the table."""
    found = []
    try:
        for (delay, gigabits), shapes in WIRES.items():
            with TwoHosts(delay=delay * 1e-6, rate=gigabits * 1e9) as hosts:
                trip = hosts.round_trip()
                say(f"two hosts, {hosts.how}; there and back {trip * 1e6:.0f} microseconds")
                wire = {"delay": hosts.delay, "bits/s": hosts.rate, "round trip": trip, "how": hosts.how}
                found.append({"wire": wire, "shapes": [_shape(hosts, shape, say) for shape in shapes]})
    except NotAllowed as why:
        return {"skipped": str(why), "lines": [f"two hosts cannot be made here: {why}"]}
    return {"wires": found, "lines": [line for one in found for line in _lines(one["wire"], one["shapes"])]}


def _shape(hosts: TwoHosts, shape: tuple[int, ...], say: Callable[[str], None]) -> dict[str, Any]:
    batch, image, inputs, outputs, kernel = shape
    launches: list[dict[str, dict[str, float]]] = []
    for number in range(LAUNCHES):
        say(f"two hosts: {batch} x {image}x{image}, {inputs} to {outputs} channels, kernel {kernel}: {number + 1}")
        launches.append(_launch(hosts, shape))
    best = max(OVERLAPS, key=lambda overlap: statistics.median(one[overlap]["hidden"] for one in launches))
    return {"shape": list(shape), "best": best, "launches": launches}


def _launch(hosts: TwoHosts, shape: tuple[int, ...]) -> dict[str, dict[str, float]]:
    batch, image, inputs, outputs, kernel = shape
    with tempfile.TemporaryDirectory() as folder:
        words = ["tessera", "halo", "compute", "--num-spatial-parts", "2", "--slice-method", "vertical"]
        words += [
            "--transport",
            "gloo",
            "--overlap",
            ",".join(OVERLAPS),
            "--image-size",
            str(image),
            "--batch-size",
            str(batch),
        ]
        words += ["--in-channels", str(inputs), "--out-channels", str(outputs), "--kernel", str(kernel)]
        words += ["--warmup", "10", "--iterations", "100", "--launches", "1", "--json"]
        ends = hosts.torchrun([*words, "--store", str(Path(folder) / "results.sqlite")], timeout=600)
    if any(end.returncode for end in ends):
        raise RuntimeError("\n".join(end.stderr for end in ends))
    records = json.loads(ends[0].stdout)["records"]
    return {
        record["case"]["params"]["overlap"]: {
            name: record["metrics"][name]["value"]
            for name in ("time", "exchange", "convolution", "sequential", "hidden")
        }
        for record in records
    }


def _lines(wire: dict[str, Any], found: list[dict[str, Any]]) -> list[str]:
    lines = [
        f"two hosts: {wire['delay'] * 1e6:.0f} microseconds and {wire['bits/s'] / 1e9:g} Gbit/s each way "
        f"({wire['how']}), medians of {LAUNCHES} launches",
        "  images, channels, kernel      exchange   convolution       in turn    overlapped   hidden",
    ]
    for one in found:
        batch, image, inputs, outputs, kernel = one["shape"]
        best = [launch[one["best"]] for launch in one["launches"]]
        middle = {name: statistics.median(launch[name] for launch in best) for name in best[0]}
        shares = sorted(launch["hidden"] for launch in best)
        what = f"{batch} x {image}, {inputs} to {outputs}, {kernel}"
        times = [f"{middle[name] * 1e3:8.2f} ms" for name in ("exchange", "convolution", "sequential", "time")]
        hidden = f"{middle['hidden']:.0%} ({shares[0]:.0%} to {shares[-1]:.0%}), {one['best']}"
        lines.append(f"  {what:24}" + "".join(f"{time:>14}" for time in times) + f"   {hidden}")
    least = min(statistics.median(launch[one["best"]]["hidden"] for launch in one["launches"]) for one in found)
    lines.append(
        f"  least hidden: {least:.0%} (promised: {PROMISED:.0%}){'' if least >= PROMISED else ': NOT REACHED'}"
    )
    return lines


if __name__ == "__main__":
    print("\n".join(run(lambda text: print(text, file=sys.stderr, flush=True))["lines"]))
