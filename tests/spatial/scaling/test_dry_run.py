"""Tests that a dry run counts what real ranks compute, send, sum and store."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from math import prod
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from tessera.errors import Refused, TesseraError
from tessera.spatial.parallel_model import parallelize
from tessera.spatial.scaling.dry_run import DryRun, run_dry, run_model_dry
from tessera.transport.all_reduce import SUM_TYPES
from tessera.transport.in_process import InProcessTransport, run_ranks
from tessera.transport.transport import Connection, Strip, Transport


def make_network(kernel: int = 3, stride: int = 1) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, kernel, stride, padding=kernel // 2),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(4, 8, 3, padding=1, groups=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )


class Mixed(nn.Module):
    """A network with operators of all kinds: split, moved to another dim, and whole."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.up = nn.ConvTranspose2d(8, 4, 4, 2, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.norm(self.first(x)).relu()
        tokens = x.flatten(2).transpose(1, 2)
        attended = nn.functional.scaled_dot_product_attention(tokens, tokens, tokens)
        x = x + attended.transpose(1, 2).reshape(x.shape)
        resized = nn.functional.interpolate(x, size=(9, 7), mode="bilinear")
        return self.up(x), torch.fft.fft2(resized).abs().mean()


class Volume(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv3d(1, 4, 3, padding=1)
        self.down = nn.Conv3d(4, 4, 3, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.conv(x).relu())  # type: ignore[no-any-return]


class CountingTransport:
    """A transport that counts the bytes that this rank sends, and the bytes of its sums of floating point numbers."""

    def __init__(self, inner: InProcessTransport) -> None:
        self._inner = inner
        self.name, self.traits, self.rank, self.size = inner.name, inner.traits, inner.rank, inner.size
        self.sent: list[int] = []
        self.summed: list[int] = []

    def empty(self, count: int, dtype: torch.dtype) -> Tensor:
        return self._inner.empty(count, dtype)

    def connect(self, sends: Sequence[Strip], receives: Sequence[Strip]) -> Connection:
        connection = self._inner.connect(sends, receives)
        sizes = [strip.tensor.nbytes for strip in sends]
        start = connection.start

        def count_and_start() -> None:
            self.sent += sizes
            start()

        connection.start = count_and_start  # type: ignore[method-assign]
        return connection

    def all_reduce(self, values: Tensor) -> None:
        if values.dtype.is_floating_point:
            self.summed.append(values.numel() * SUM_TYPES[values.dtype].itemsize)
        self._inner.all_reduce(values)

    def barrier(self) -> None:
        self._inner.barrier()

    def close(self) -> None:
        self._inner.close()


def run_real(build: Any, shape: Sequence[int], mesh: Sequence[int], training: bool) -> tuple[list[int], list[int]]:
    """Run a step on real ranks; return what the rank of the dry run sends, and the bytes of its sums."""
    dry_rank = sum((count - 1) // 2 * prod(mesh[axis + 1 :]) for axis, count in enumerate(mesh))
    torch.manual_seed(0)
    model = build().train(training)
    models = [deepcopy(model) for _ in range(prod(mesh))]
    image = torch.randn(*shape)

    def run_rank(inner: InProcessTransport) -> tuple[list[int], list[int]]:
        transport = CountingTransport(inner)
        counted: Transport = transport
        parallel = parallelize(models[inner.rank], mesh, transport=counted, broadcast=False)
        tile = parallel.scatter(image)
        with torch.set_grad_enabled(training):
            outputs = parallel(tile)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            if training:
                sum(output.sum() for output in outputs).backward()
        return transport.sent, transport.summed

    return run_ranks(prod(mesh), run_rank)[dry_rank]


def list_sent(run: DryRun) -> list[int]:
    """Return the bytes of all messages that the rank of a dry run sends."""
    rank = sum((count - 1) // 2 * prod(run.mesh[axis + 1 :]) for axis, count in enumerate(run.mesh))
    return [
        int(pixels) * transfer.item_bytes
        for transfer in run.transfers
        for source, pixels in zip(transfer.traffic.source, transfer.traffic.pixels, strict=True)
        if source == rank
    ]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    ("build", "shape", "mesh"),
    [
        (make_network, (2, 3, 19, 23), (2, 2)),
        (make_network, (1, 3, 16, 16), (1, 3)),
        (Mixed, (2, 3, 12, 8), (2, 2)),
        (Mixed, (1, 3, 8, 12), (3, 1)),
        (Volume, (1, 1, 8, 6, 10), (2, 1, 2)),
    ],
)
def test_a_dry_rank_sends_and_sums_what_a_real_rank_does(
    build: Any, shape: tuple[int, ...], mesh: tuple[int, ...], training: bool
) -> None:
    run = run_dry(build(), shape[2:], mesh, batch=shape[0], channels=shape[1], training=training)
    sent, summed = run_real(build, shape, mesh, training)
    assert sum(list_sent(run)) == sum(sent) > 0
    predicted = [*run.statistics, *run.gradients]
    assert sum(predicted) == sum(summed)
    # A sum that is needed at once takes the weight gradients that wait along, which a dry run does not foresee.
    assert len(predicted) - 1 <= len(summed) <= len(predicted)
    if build is not Mixed:
        assert sorted(predicted) == sorted(summed)


@pytest.mark.parametrize("kernel", [1, 5])
def test_flops_and_saved_bytes_equal_a_real_step(kernel: int) -> None:
    run = run_dry(make_network(kernel), (21, 34), (1, 1), batch=2)
    network, counter, kept = make_network(kernel), FlopCounterMode(display=False), dict[int, int]()
    weights = {p.untyped_storage().data_ptr() for p in (*network.parameters(), *network.buffers())}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    image = torch.randn(2, 3, 21, 34)
    with counter, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = network(image)
        output.sum().backward()
    assert sum(operation.flops for operation in run.operations) == counter.get_total_flops()
    assert run.weight_bytes == sum(t.nbytes for t in (*network.parameters(), *network.buffers()))
    assert run.gradient_bytes == sum(p.nbytes for p in network.parameters())
    assert sum(kept.values()) <= run.activation_bytes <= sum(kept.values()) + image.nbytes + output.nbytes + 500


def test_tiles_divide_work_and_activations() -> None:
    alone, split = (run_dry(make_network(), (64, 64), mesh) for mesh in ((1, 1), (4, 4)))
    flops = [sum(operation.flops for operation in run.operations) for run in (alone, split)]
    assert flops[0] / 16 <= flops[1] < flops[0] / 12
    assert alone.activation_bytes / 16 < split.activation_bytes < alone.activation_bytes / 8
    assert alone.halo_bytes == 0 < split.halo_bytes
    assert not alone.transfers
    assert split.tile == (16, 16)
    assert split.gradient_bytes == alone.gradient_bytes


def test_inference_keeps_nothing_for_backward() -> None:
    run = run_dry(make_network(), (64, 64), (2, 2), training=False)
    assert run.activation_bytes == run.gradient_bytes == 0
    assert not run.gradients
    assert run.temporary_bytes > 0


@pytest.mark.timeout(180)
def test_images_that_no_machine_holds() -> None:
    run = run_model_dry("resnet18", (1_000_000, 1_000_000), (4, 4))
    assert run.activation_bytes > 1 << 40


def test_what_is_computed_whole_is_in_the_log() -> None:
    run = run_dry(Mixed(), (12, 8), (2, 2))
    assert {operation.way for operation in run.log} == {"split", "moved", "whole"}


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        return x if x.sum() > 0 else -x


def test_networks_that_need_values_are_refused_in_one_line() -> None:
    with pytest.raises(Refused, match="cannot be run on shapes of this image alone") as caught:
        run_dry(Branching(), (16, 16), (1, 2))
    assert "\n" not in str(caught.value)
    with pytest.raises(TesseraError, match="got '1x3x4x4'"):
        run_dry(nn.Conv2d(3, 4, 9), (4, 4), (1, 2))
    with pytest.raises(Refused, match="no output of the model depends on its weights"):
        run_dry(nn.ReLU(), (8, 8), (1, 2))
