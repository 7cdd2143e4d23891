"""Tests of device processes: outputs equal plain torch; a killed process is an error and leaks no resources."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import psutil
import pytest
import torch
from torch import Tensor, nn

from tessera.errors import BenchmarkFailed, TesseraError
from tessera.phased import MatrixChain, PhasedModel
from tests.launch.process_checks import end_within
from tests.phased.random_networks import use_one_thread

LAYERS, SIZE = 6, 64


def list_shared_memory() -> list[str]:
    """List shared memory segments, except segments of MPI jobs, which other tests may run concurrently."""
    return sorted(name for name in os.listdir("/dev/shm") if not name.startswith("sm_segment"))


def call_often(phased: PhasedModel, x: Tensor) -> None:
    for _ in range(100_000):
        phased(x)


@pytest.mark.timeout(120)
def test_a_killed_device_is_an_error_and_the_next_call_starts_new_devices():
    model = MatrixChain(SIZE, LAYERS)
    batches = [torch.randn(2, SIZE, SIZE) for _ in range(3)]
    with torch.no_grad():
        expected = [model(batch) for batch in batches]
    before, existing = list_shared_memory(), set(psutil.Process().children(recursive=True))

    def list_devices() -> list[psutil.Process]:
        return [child for child in psutil.Process().children(recursive=True) if child not in existing]

    budget = PhasedModel.compute_min_budget(model, schedule="phased")
    with PhasedModel(model, schedule="phased", budget=budget, workers="processes", threads=1) as phased:
        assert all(map(torch.equal, phased.run(batches), expected))
        assert {event.device for event in phased.events} == {0, 1}
        loads = [(event.phase, event.device) for event in phased.events if event.kind == "load"]
        assert sorted(loads) == [(phase, phase % 2) for phase in range(LAYERS)]
        children = list_devices()
        threading.Timer(0.3, children[-1].send_signal, [signal.SIGKILL]).start()
        with pytest.raises(BenchmarkFailed, match=r"a device failed: rank \d of 2 .*SIGKILL"):
            call_often(phased, batches[0])
        assert end_within([child.pid for child in children], 10)
        assert all(map(torch.equal, phased.run(batches), expected))
        children = list_devices()
    assert end_within([child.pid for child in children], 10)
    assert list_shared_memory() == before


class Branching(nn.Module):
    """A residual block with batch norm, in-place calls, two inputs, a size that crosses phases, and two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.short = nn.Conv2d(3, 8, 1)
        self.last = nn.Linear(8, 5)
        self.eval()

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        samples = x.shape[0]
        z = self.norm(self.second(self.first(x).relu_()))
        z += self.short(y)
        return self.last(z.relu_().mean((2, 3)).view(samples, -1)), z


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("schedule", "dtype"), [("phased", "float16"), ("sharded", "float32")])
def test_branching_networks_equal_torch_on_device_processes(schedule, dtype):
    model = Branching()
    rounded = Branching()
    rounded.load_state_dict(model.state_dict())
    rounded = rounded.to(getattr(torch, dtype)).float()
    batches = [(torch.randn(2, 3, 9, 9), torch.randn(2, 3, 9, 9)) for _ in range(3)]
    with use_one_thread(), torch.no_grad():  # one thread, as in the devices: more threads change the order of summation
        expected = [rounded(*batch) for batch in batches]
    budget = PhasedModel.compute_min_budget(model, schedule=schedule, dtype=dtype, workers="processes")
    with PhasedModel(model, schedule=schedule, workers="processes", dtype=dtype, budget=budget, threads=1) as phased:
        for output, expected_output in zip(phased.run(batches), expected, strict=True):
            assert all(map(torch.equal, output, expected_output))
        with pytest.raises(TesseraError, match="does not run on this input"):
            phased(torch.randn(2, 4, 9, 9), batches[0][1])
        with pytest.raises(TesseraError, match="mini-batches of equal shapes"):
            phased.run([batches[0], (batches[0][0][:1], batches[0][1][:1])])
        assert torch.equal(phased(*batches[0])[0], expected[0][0])


class Held(nn.Module):
    """A network with a non-persistent buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.register_buffer("mean", torch.rand(8), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x - self.mean) * self.mean)


@pytest.mark.timeout(120)
def test_non_persistent_buffers_are_sent_to_the_devices():
    model, x = Held().eval(), torch.randn(3, 8)
    with (
        torch.no_grad(),
        PhasedModel(model, schedule="phased", workers="processes", phases=["first", "second"]) as phased,
    ):
        torch.testing.assert_close(phased(x), model(x))


class Adds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        a += 1
        return self.second(self.first(a)) + b


@pytest.mark.timeout(120)
def test_two_inputs_in_the_same_memory_are_refused():
    x = torch.randn(3, 8)
    model = Adds().eval()
    with PhasedModel(model, schedule="phased", workers="processes", phases=["first", "second"]) as phased:
        with pytest.raises(TesseraError, match="a and b are in the same memory"):
            phased(x, x)
        with torch.no_grad():
            torch.testing.assert_close(phased(x.clone(), x.clone()), model(x.clone(), x.clone()))


RANK = """
import sys, torch
from torch import nn
from tessera.phased import PhasedModel
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).eval()
x = torch.randn(3, 8)
with torch.no_grad(), PhasedModel(model, schedule="phased", workers="processes", phases=["0", "1"]) as phased:
    torch.testing.assert_close(phased(x), model(x))
"""


@pytest.mark.timeout(120)
def test_every_rank_of_a_job_has_its_own_devices(tmp_path):
    (tmp_path / "rank.py").write_text(RANK)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "rank.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
