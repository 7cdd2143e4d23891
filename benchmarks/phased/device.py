"""Streaming to a device, on the device for tests, with copies and computing set to equal lengths.

A chain of linear layers is streamed from pinned host memory (`host`) and from the disk through two pinned buffers
(`disk`) to the device, whose operators take a set time and whose copies have a set speed. The limit is the longer of
all copies and all operators of a pass; both are equal here. Needs a C++ compiler.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from phased.interleaved import compare_with_target

ROOT = Path(__file__).parents[2]
MAX_RATIO = 1.10
WORKER = """
import json, sys, time
import torch
from torch import nn
from tessera.device import open_device
from tessera.phased import PhasedModel
from tessera_standin import configure

size, layers, milliseconds, rounds, store = (*map(int, sys.argv[1:5]), sys.argv[5])
network = nn.Sequential(*(nn.Linear(size, size, bias=False) for _ in range(layers))).eval()
layer = 4 * size * size
device, x = open_device("standin:0"), torch.randn(1, size)
phases = list(range(layers))
options = dict(device="standin:0", phases=phases, budget=2 * layer + 8192, keep=False, store=store)
seconds = []
with torch.no_grad(), PhasedModel(network, **options) as phased:
    expected = network(x)
    for _ in range(2):
        assert torch.allclose(phased(x).cpu(), expected, atol=1e-4)
    on_device = x.to("standin:0")
    configure(operator_ns=milliseconds * 1_000_000, copy_bytes_per_second=layer * 1000 // milliseconds)
    for _ in range(rounds + 1):
        device.synchronize()
        start = time.perf_counter()
        for _ in range(3):
            phased(on_device)
        device.synchronize()
        seconds.append((time.perf_counter() - start) / 3)
print(json.dumps(seconds[1:]))
"""


def run(say: Callable[[str], None], *, small: bool = False, rounds: int | None = None) -> dict[str, Any]:
    sys.path.insert(0, str(ROOT))
    from tests.device.standin.build import find_missing, make_environment

    if missing := find_missing():
        return {"found": {}, "lines": [f"not run: {missing}"]}
    size, layers, milliseconds = (128, 6, 2) if small else (512, 16, 10)
    count = rounds or (2 if small else 5)
    longer = layers * milliseconds / 1e3
    results: dict[str, Any] = {}
    lines = [
        f"{layers} layers on the device for tests, {milliseconds} ms to copy and {milliseconds} ms to compute each"
    ]
    for store in ("host", "disk"):
        say(f"device, {store}")
        arguments = [str(value) for value in (size, layers, milliseconds, count, store)]
        command = [sys.executable, "-c", WORKER, *arguments]
        done = subprocess.run(command, env=make_environment(), capture_output=True, text=True, timeout=300, check=True)
        seconds = json.loads(done.stdout.splitlines()[-1])
        ratios = sorted(value / longer for value in seconds)
        ratio = statistics.median(ratios)
        results[store] = {"seconds": seconds, "longer": longer, "ratio": ratio}
        lines.append(
            f"  {store}: {ratio:.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f}) of the longer one"
            f" ({compare_with_target(ratio, MAX_RATIO)})"
        )
    return {"found": results, "lines": lines}
