"""Tests of exchange and `parallelize` on the device for tests: results of the unsplit network on the CPU, and order.

The device is asynchronous and its memory is protected: a missing event or synchronisation gives wrong values, and a
host tensor in a collective of the device, or the reverse, is an error.
"""

from __future__ import annotations

import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tessera.device import open_device
from tessera.spatial import parallelize
from tessera.transport.device_staging import StagedTransport
from tessera.transport.in_process import InProcessTransport, run_ranks
from tessera.transport.transport import Strip
from tests.device.standin.build import find_missing, make_environment
from tests.device.standin.runner import on_standin

pytestmark = pytest.mark.timeout(120)


def make_network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(inplace=True),
        nn.Conv2d(6, 6, 3, stride=2, padding=1, padding_mode="reflect"),
        nn.GroupNorm(2, 6),
        nn.AvgPool2d(3, 1, 1, count_include_pad=False),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.ConvTranspose2d(6, 4, 4, 2, 1),
        nn.MaxPool2d(3, 2, 1),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 5),
    )


def run_training(model: nn.Module, image: Tensor, output_of: Any) -> tuple[Tensor, ...]:
    leaf = image.clone().requires_grad_()
    output = output_of(leaf)
    output.square().sum().backward()
    grads = [weight.grad for weight in model.parameters()]
    assert leaf.grad is not None
    return output.detach(), leaf.grad, *(grad for grad in grads if grad is not None), *model.buffers()


@pytest.mark.parametrize(
    "options",
    [{}, {"halo_depth": 2}, {"overlap": "split"}, {"overlap": "recompute"}, {"fp16_allreduce": True}],
    ids=str,
)
@on_standin
def test_networks_on_two_devices_equal_the_unsplit_network(options: dict[str, Any]) -> None:
    torch.manual_seed(11)
    model, image = make_network().double(), torch.randn(2, 3, 20, 24, dtype=torch.float64)
    unsplit = deepcopy(model)
    expected = run_training(unsplit, image, unsplit)

    def run(transport: InProcessTransport) -> tuple[Tensor, ...]:
        device = f"standin:{transport.rank}"
        parallel = parallelize(deepcopy(model).to(device), "1x2", transport=transport, **options)
        assert parallel.group.transport.traits.device_type == "standin"
        results = run_training(parallel.model, image.to(device), lambda leaf: parallel.gather(parallel(leaf)))
        assert {result.device for result in results} == {torch.device(device)}
        return tuple(result.cpu() for result in results)

    tolerance = 2e-2 if "fp16_allreduce" in options else 1e-9
    for results in run_ranks(2, run):
        for actual, wanted in zip(results, expected, strict=True):
            torch.testing.assert_close(actual, wanted.detach(), rtol=tolerance, atol=tolerance)


@on_standin
def test_scatter_from_one_rank_and_sums_of_host_tensors() -> None:
    model, image = nn.Conv2d(3, 4, 3, padding=1).double(), torch.randn(1, 3, 12, 10, dtype=torch.float64)
    expected = model(image)

    def run(transport: InProcessTransport) -> tuple[Tensor, Tensor]:
        device = f"standin:{transport.rank}"
        parallel = parallelize(deepcopy(model).to(device), "1x2", transport=transport)
        tile = parallel.scatter(image.to(device) if transport.rank == 1 else None, root=1)
        numbers = torch.tensor([transport.rank + 1])
        parallel.group.transport.all_reduce(numbers)
        return parallel.gather(parallel(tile)).detach().cpu(), numbers

    for output, numbers in run_ranks(2, run):
        torch.testing.assert_close(output, expected.detach())
        assert numbers.tolist() == [3]


@on_standin
def test_rounds_of_an_exchange_are_ordered_with_the_work_of_the_device() -> None:
    """Check many rounds in which strips are overwritten at once after they were sent, and read at once after finish."""
    from tessera_standin import configure

    rounds, count = 8, 1000

    def run(transport: InProcessTransport) -> list[float]:
        device = open_device(f"standin:{transport.rank}")
        staged = StagedTransport(transport, device)
        sent, received = staged.empty(count, torch.float64), staged.empty(count, torch.float64)
        peer = 1 - transport.rank
        connection = staged.connect([Strip(peer, sent)], [Strip(peer, received)])
        results = []
        for number in range(rounds):
            connection.wait_until_sent()
            sent.fill_(10.0 * number + transport.rank)
            connection.start()
            connection.wait_until_sent()
            sent.fill_(-1.0)  # after the copy, by the order of the streams
            connection.finish()
            results.append(received.sum() / count)
        connection.close()
        return [float(result) for result in results]

    configure(operator_ns=300_000)
    try:
        first, second = run_ranks(2, run)
    finally:
        configure(operator_ns=0)
    assert first == [10.0 * number + 1 for number in range(rounds)]
    assert second == [10.0 * number for number in range(rounds)]


@on_standin
def test_weights_on_two_devices_are_an_error() -> None:
    from tessera.errors import TesseraError

    model = nn.Sequential(nn.Conv2d(3, 3, 1).to("standin:0"), nn.Conv2d(3, 3, 1).to("standin:1"))
    with pytest.raises(TesseraError, match="on several devices"):
        parallelize(model, "1x1")


TWO_RANKS = """
import copy
import torch, torch.distributed as dist
from torch import nn
from tessera.spatial import parallelize

dist.init_process_group("gloo")
torch.manual_seed(4)
device = f"standin:{dist.get_rank()}"
model = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 2, 3, 2)).double()
unsplit, image = copy.deepcopy(model), torch.randn(2, 3, 16, 18, dtype=torch.float64)
unsplit(image).square().sum().backward()
parallel = parallelize(model.to(device), "1x2", overlap="split")
assert parallel.group.transport.traits.device_type == "standin", parallel.group.transport.name
parallel(image.to(device)).square().sum().backward()
for own, whole in zip(model.parameters(), unsplit.parameters(), strict=True):
    assert own.grad.device == torch.device(device)
    torch.testing.assert_close(own.grad.cpu(), whole.grad)
print("equal over", parallel.group.transport.name)
dist.destroy_process_group()
"""


def test_ranks_of_torchrun_with_a_device_each(tmp_path: Path) -> None:
    if missing := find_missing():
        pytest.skip(missing)
    program = tmp_path / "two_ranks.py"
    program.write_text(TWO_RANKS)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(program)]
    done = subprocess.run(command, env=make_environment(), capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("equal over shm") == 2
