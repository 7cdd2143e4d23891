"""Tests under a memory limit: a network whose weights are four times the limit runs with the right output.

Most of the weights are zeros in holes of the file, which take no disk space but are read.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SIZE, ROWS = 2048, 32  # number of rows of every weight that are not zero
LAYER = 4 * SIZE * SIZE
EXTRA_MEMORY = 400 << 20  # limit of the address space in addition to the interpreter and torch

PROGRAM = """
import resource, sys
from pathlib import Path
import torch
from tessera.phased import MatrixChain, PhasedModel

path, given, result, layers, limit = sys.argv[1:]
torch.set_num_threads(1)
torch.randn(64, 64) @ torch.randn(64, 64)
resource.setrlimit(resource.RLIMIT_AS, (int(limit), int(limit)))
try:
    bytearray(int(limit))
except MemoryError:
    print("limited")
with torch.device("meta"):
    model = MatrixChain({size}, int(layers))
with PhasedModel(model, path=path, budget="96MB", cold=True) as phased:
    torch.save(phased(torch.load(given)), result)
    print(phased.weight_bytes, phased.working_bytes, phased.stream_bytes)
"""


def measure_address_space() -> int:
    """Return the peak address space, in bytes, of a process that imports torch and computes a matrix product."""
    code = (
        "import torch, tessera.phased.model; torch.set_num_threads(1); torch.randn(64, 64) @ torch.randn(64, 64);"
        "print([line.split()[1] for line in open('/proc/self/status') if line.startswith('VmPeak')][0])"
    )
    return 1024 * int(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60).stdout)


def write_mostly_holes(path: Path, blocks: list[torch.Tensor]) -> None:
    header = {
        f"layers.{n}.weight": {"dtype": "F32", "shape": [SIZE, SIZE], "data_offsets": [n * LAYER, (n + 1) * LAYER]}
        for n in range(len(blocks))
    }
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 4096)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        base = file.tell()
        for number, block in enumerate(blocks):
            os.pwrite(file.fileno(), block.numpy().tobytes(), base + number * LAYER)
        os.ftruncate(file.fileno(), base + len(blocks) * LAYER)


@pytest.mark.timeout(180)
def test_weights_of_four_times_the_memory_limit_can_be_used(tmp_path):
    limit = measure_address_space() + EXTRA_MEMORY
    layers = -(-4 * limit // LAYER)
    blocks = [torch.randn(ROWS, SIZE) / ROWS**0.5 for _ in range(layers)]
    path, input_path, result = (tmp_path / name for name in ("weights", "given", "result"))
    write_mostly_holes(path, blocks)
    x = torch.randn(3, SIZE)
    torch.save(x, input_path)
    command = [
        sys.executable,
        "-c",
        PROGRAM.replace("{size}", str(SIZE)),
        *map(str, (path, input_path, result, layers, limit)),
    ]
    # otherwise malloc reserves 64 MB or more of addresses for every thread, which count towards the limit
    env = os.environ | {"MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
    limited, sizes = done.stdout.splitlines()
    assert limited == "limited"
    weights, working, streamed = map(int, sizes.split())
    assert weights >= 4 * limit
    assert working <= 96_000_000
    assert streamed > 0.95 * weights
    for block in blocks:
        x = x[:, :ROWS] @ block
    torch.testing.assert_close(torch.load(result), x, rtol=1e-3, atol=1e-4)


GROWTH = """
import sys
import torch
from tessera.measure.memory import measure_resident_growth
from tessera.phased import MatrixChain, PhasedModel

path, layers, budget = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)
x = torch.randn(1, {size})
with torch.device("meta"):
    model = MatrixChain({size}, layers)

def run_passes(**options):
    with PhasedModel(model, path=path, budget=budget, keep=False, **options) as phased:
        for _ in range(3):
            phased(x)

for options in ({}, {"cold": True}, {"store": "mapped"}):
    for schedule in ("overlapped", "phased"):
        run_passes(schedule=schedule, **options)  # memory that libraries allocate once does not count
        print(measure_resident_growth(lambda: run_passes(schedule=schedule, **options)))
"""


@pytest.mark.timeout(120)
def test_resident_memory_stays_within_the_budget(tmp_path):
    layers, budget = 16, 3 * (LAYER + 4096)
    path = tmp_path / "weights"
    write_mostly_holes(path, [torch.randn(ROWS, SIZE) for _ in range(layers)])
    program = GROWTH.replace("{size}", str(SIZE))
    command = [sys.executable, "-c", program, *map(str, (path, layers, budget))]
    grown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100).stdout.split()
    if "None" in grown:
        pytest.skip("this kernel does not report the peak memory of a process")
    assert len(grown) == 6
    assert max(map(int, grown)) <= 1.1 * budget
