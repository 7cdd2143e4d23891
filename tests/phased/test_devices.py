"""Tests of devices: they are pinned, have their own torch threads, and compute the results of plain torch."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
import torch
from torch import Tensor, nn

from tessera.models import build, compute_model_info
from tessera.phased import PhasedModel
from tests.phased.random_networks import use_one_thread


class Looks(nn.Module):
    """A network that records the cores and the number of torch threads of the thread that computes it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, list[object]]:
        x = self.first(x)
        places: list[object] = [(os.sched_getaffinity(0), torch.get_num_threads())]
        x = self.second(x)
        return x, [*places, (os.sched_getaffinity(0), torch.get_num_threads())]


@pytest.mark.timeout(30)
def test_devices_are_pinned_and_the_caller_is_not():
    before = os.sched_getaffinity(0), torch.get_num_threads(), set(threading.enumerate())
    options = {"schedule": "phased", "devices": 2, "threads": 1, "phases": ["first", "second"], "keep": False}
    with PhasedModel(Looks().eval(), budget="8KiB", **options) as phased:
        _, ((first, count), (second, again)) = phased(torch.randn(2, 4))
        assert len(first) == len(second) == count == again == 1
        if len(before[0]) > 1:
            assert first != second
    with PhasedModel(Looks().eval(), budget="8KiB", pin=False, **options) as phased:
        assert phased(torch.randn(2, 4))[1] == [(before[0], 1)] * 2
    assert (os.sched_getaffinity(0), torch.get_num_threads()) == before[:2]
    assert not [t for t in set(threading.enumerate()) - before[2] if t.name.startswith("tessera-batch")]


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
def test_branching_networks_equal_torch_on_two_devices(schedule, dtype):
    model = Branching()
    rounded = Branching()
    rounded.load_state_dict(model.state_dict())
    rounded = rounded.to(getattr(torch, dtype)).float()
    batches = [(torch.randn(2, 3, 9, 9), torch.randn(2, 3, 9, 9)) for _ in range(3)]
    batches.append((batches[0][0][:1], batches[0][1][:1]))
    with use_one_thread(), torch.no_grad():  # one thread, as in the devices: more threads change the order of summation
        expected = [rounded(*batch) for batch in batches]
    budget = PhasedModel.compute_min_budget(model, schedule=schedule, dtype=dtype)
    with PhasedModel(model, schedule=schedule, dtype=dtype, budget=budget, threads=1) as phased, torch.no_grad():
        for _ in range(2):
            for output, expected_output in zip(phased.run(batches), expected, strict=True):
                assert all(map(torch.equal, output, expected_output))
        with pytest.raises(RuntimeError, match="channels"):
            phased(torch.randn(2, 4, 9, 9), batches[0][1])
        assert torch.equal(phased(*batches[0])[0], expected[0][0])


class Adds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        a += 1
        return self.second(self.first(a)) + b


class Aliases(nn.Module):
    """A network in which a value and a view of it cross a phase boundary, after which the view is written to."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        y = self.first(x)
        part = y[:, :2]
        z = self.second(other)
        part.add_(1)
        return y + z


@pytest.mark.timeout(60)
@pytest.mark.parametrize("schedule", ["overlapped", "phased", "data-parallel"])
@pytest.mark.parametrize("kind", [Adds, Aliases])
def test_values_in_the_same_memory_stay_in_it(kind, schedule):
    model, x = kind().eval(), torch.randn(3, 8)
    options = {"phases": ["first", "second"], "keep": False, "threads": 1}
    with PhasedModel(model, schedule=schedule, **options) as phased, use_one_thread(), torch.no_grad():
        same, again = x.clone(), x.clone()
        torch.testing.assert_close(phased(same, same), model(again, again))
        torch.testing.assert_close(phased(x.clone(), x.clone()), model(x.clone(), x.clone()))


def test_the_flops_of_the_phases_are_those_of_the_network():
    model = build("resnet18")
    with PhasedModel(model, budget="12MB", input_shape=(2, 3, 64, 64)) as phased:
        assert sum(phase.flops or 0 for phase in phased.phases) == compute_model_info(model, (2, 3, 64, 64)).flops
        layers = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.BatchNorm2d | nn.Linear)]
        assert sum(len(phase.modules) for phase in phased.phases) == len(layers)


RANK = """
import torch
from torch import nn
from tessera.phased import PhasedModel
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).eval()
x = torch.randn(3, 8)
with torch.no_grad(), PhasedModel(model, schedule="phased", phases=["0", "1"]) as phased:
    torch.testing.assert_close(phased(x), model(x))
"""


@pytest.mark.timeout(120)
def test_every_rank_of_a_job_has_its_own_devices(tmp_path):
    (tmp_path / "rank.py").write_text(RANK)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "rank.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
