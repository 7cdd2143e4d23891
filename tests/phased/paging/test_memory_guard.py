"""Tests of `memory_limit`: the peak memory that the kernel saw is compared with the limit, in fresh processes."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from tessera.errors import TesseraError
from tessera.models import MODELS, build
from tessera.phased import PhasedModel
from tests.phased.paging.limited_networks import NETWORKS, build_network

PASSES = 4
ACTIVATION_BYTES = 40 << 20  # activations, and memory that libraries allocate at the first use
SAMPLE = ("resnet50", "transformer encoder", "growing cache")

PROGRAM = """
import json, sys
import torch
from tessera.errors import TesseraError
from tessera.measure.memory import read_process_memory
from tessera.phased import PhasedModel
from tests.phased.paging.limited_networks import build_network

name, path, data, extra, passes = *sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5])
torch.set_num_threads(1)
inputs, expected = torch.load(data, mmap=False)
limit = read_process_memory().resident + extra
result = {"limit": limit}
try:
    model = {"model": lambda: build_network(name), "memory_limit": limit}
    with torch.no_grad(), PhasedModel.from_pretrained(path, **model) as phased:
        outputs = [phased(*inputs) for _ in expected]
        errors = [float((a - b).abs().max() / b.abs().max()) for a, b in zip(outputs, expected)]
        result["error_of_output"] = max(errors)  # weights of the file are aligned differently: see docs/phases.md
        result["resident"] = sum(phase.resident for phase in phased.phases)
        result["explanation"] = phased.explain()
except TesseraError as error:
    result["error"] = str(error)
result["peak"] = read_process_memory().peak
print(json.dumps(result))
"""


def run_limited(name, folder, extra, *, share=3):
    """Run a network in a new process with `extra` bytes and a `share` of its weights as memory."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    torch.manual_seed(seed)
    network = build(name) if name in MODELS else build_network(name)
    inputs = NETWORKS[name][1]()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            expected = [network(*inputs) for _ in range(PASSES)]
    finally:
        torch.set_num_threads(before)
    weights = dict(network.state_dict())
    size = sum(value.nbytes for value in weights.values())
    save_file(weights, folder / "weights.safetensors")
    torch.save((inputs, expected), folder / "data")
    program = [sys.executable, "-c", PROGRAM, name, folder / "weights.safetensors", folder / "data"]
    arguments = [int(extra + size / share), PASSES]
    done = subprocess.run([*map(str, program + arguments)], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1]), size


@pytest.mark.timeout(150)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in SAMPLE else pytest.mark.slow) for name in NETWORKS]
)
def test_peak_memory_stays_below_the_limit(name, tmp_path):
    result, size = run_limited(name, tmp_path, ACTIVATION_BYTES)
    assert "error" not in result, result
    assert result["error_of_output"] <= (1e-2 if name == "bfloat16" else 1e-5)
    assert result["peak"] <= result["limit"]
    assert size / 3 + ACTIVATION_BYTES < size + (2 << 20), "the limit would hold all weights"


@pytest.mark.timeout(150)
def test_limit_that_activations_exceed_is_an_error(tmp_path):
    result, _ = run_limited("linear, many rows", tmp_path, 14 << 20, share=1000)
    assert "memory limit" in result["error"]
    assert result["peak"] <= result["limit"] + (48 << 20)


@pytest.mark.timeout(60)
def test_limit_below_the_memory_of_the_process_is_an_error():
    with pytest.raises(TesseraError, match="already uses the memory") as raised:
        PhasedModel(nn.Linear(8, 8), memory_limit="20MB")
    assert "memory_limit" in str(raised.value)


@pytest.mark.timeout(60)
def test_limit_requires_a_store_outside_of_the_process():
    with pytest.raises(TesseraError, match="store='disk' or 'mapped'"):
        PhasedModel(nn.Linear(8, 8), memory_limit="200GB", store="host")


@pytest.mark.timeout(60)
def test_large_limit_keeps_all_weights():
    network = nn.Sequential(*(nn.Linear(64, 64) for _ in range(4))).eval()
    x = torch.randn(2, 64)
    with torch.no_grad(), PhasedModel(network, memory_limit="200GB") as phased:
        assert torch.equal(phased(x), network(x))
        assert all(phase.resident for phase in phased.phases)


@pytest.mark.timeout(60)
def test_evicted_phases_are_streamed_with_the_same_result(monkeypatch):
    network = nn.Sequential(*(nn.Linear(64, 64) for _ in range(6))).eval()
    x = torch.randn(2, 64)
    with torch.no_grad(), PhasedModel(network, memory_limit="200GB", dtype="float64") as phased:
        expected = network(x)
        assert torch.equal(phased(x), expected)
        phased._guard.limit = 1 << 20  # the process exceeds it: nothing more fits
        monkeypatch.setattr(type(phased._guard), "check", lambda self: None)
        with pytest.raises(TesseraError, match="leaves too little"):
            phased(x)
        assert phased._pager.counts.evictions > 0
        phased._guard.limit = 200 * 10**9
        for _ in range(3):
            assert torch.equal(phased(x), expected)
