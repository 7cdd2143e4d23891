"""Tests of networks that run their own Python: control flow, state, hooks, tied weights, and weights read anywhere."""

from __future__ import annotations

import collections
import copy
import dataclasses
import os
import threading

import pytest
import torch
from torch import Tensor, nn

from tessera.errors import TesseraError
from tessera.phased import PhasedModel
from tests.phased.random_networks import use_one_thread

PAGE = 4096


class Branches(nn.Module):
    """A network that takes one of two ways, by the values of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(6))

    def forward(self, x: Tensor, *, scale: float = 1.0, mask: Tensor | None = None) -> dict[str, Tensor]:
        assert isinstance(x, Tensor)
        order = self.layers if x.sum() > 0 else reversed(self.layers)
        for layer in order:
            x = layer(x) * scale
        return collections.OrderedDict(y=x if mask is None else x * mask)


class SeveralPhases(nn.Module):
    """An expression with weights of several modules, of which none is called."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        first = self.a.weight
        x = nn.functional.linear(x, self.b.weight, self.c.bias)
        return x @ first + self.c(x) + sum(p.sum() for p in self.parameters())


@dataclasses.dataclass
class Result:
    value: Tensor
    count: int


class Counts(nn.Module):
    """A network with state on its modules: a counter, a list, and a buffer that is replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.register_buffer("total", torch.zeros(8))
        self.calls, self.seen = 0, []

    def forward(self, x: Tensor) -> Result:
        self.calls += 1
        self.seen.append(x.mean())
        self.total = self.total + self.first(x).mean(0)
        return Result(self.second(x) + self.total + self.calls + sum(self.seen), self.calls)


class Tied(nn.Module):
    """Tied embeddings, a hook, a module that is called twice, and channels-last weights."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(20, 8), nn.Linear(8, 20, bias=False)
        self.head.weight = self.embed.weight
        self.layer = nn.Linear(8, 8)
        self.conv = nn.Conv2d(4, 8, 3, padding=1).to(memory_format=torch.channels_last)
        self.layer.register_forward_hook(lambda module, args, output: output + module.bias)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.layer(self.layer(self.embed(ids)))
        assert self.conv.weight.is_contiguous(memory_format=torch.channels_last)
        y = self.conv(x.view(1, 4, -1, 2))
        return self.head(x) + y.mean()


class Odd(nn.Module):
    """Complex and integer weights, an embedding with `max_norm`, recurrent layers and attention."""

    def __init__(self) -> None:
        super().__init__()
        self.phase = nn.Parameter(torch.randn(8, dtype=torch.complex64))
        self.table = nn.Parameter(torch.randint(0, 8, (8,)), requires_grad=False)
        self.embed = nn.Embedding(8, 8, max_norm=0.5)
        self.lstm, self.gru = nn.LSTM(8, 8, 2, batch_first=True), nn.GRU(8, 8, batch_first=True)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.fft.ifft(torch.fft.fft(x) * self.phase).real + self.embed(self.table)
        x = self.gru(self.lstm(x)[0])[0]
        return self.encoder(self.attention(x, x, x)[0])


NETWORKS = [
    (Branches, [torch.ones(2, 8), -torch.ones(2, 8), torch.ones(2, 8)]),
    (SeveralPhases, [torch.randn(2, 8)] * 3),
    (Counts, [torch.randn(2, 8)] * 3),
    (Tied, [torch.arange(8)[None]] * 3),
    (Odd, [torch.randn(2, 8, 8)] * 3),
]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("schedule", ["sequential", "overlapped", "phased", "data-parallel", "sharded", "resident"])
@pytest.mark.parametrize(("kind", "inputs"), NETWORKS, ids=[kind.__name__ for kind, _ in NETWORKS])
def test_any_python_equals_torch(kind, inputs, schedule):
    model = kind().eval()
    plain = copy.deepcopy(model)
    least = PhasedModel.compute_min_budget(model, schedule=schedule)
    with (
        PhasedModel(model, schedule=schedule, budget=least, keep=False, threads=1) as phased,
        use_one_thread(),
        torch.no_grad(),
    ):
        for x in inputs:
            output, expected = phased(x), plain(x)
            assert type(output) is type(expected)
            if isinstance(expected, Tensor):
                torch.testing.assert_close(output, expected, rtol=1e-6, atol=1e-6)
            elif isinstance(expected, dict):
                torch.testing.assert_close(output["y"], expected["y"])
            else:
                assert output.count == expected.count
                assert torch.equal(output.value, expected.value)


def test_another_way_loads_on_demand():
    model = Branches().eval()
    with PhasedModel(model, budget=2 * PAGE, keep=False, threads=1) as phased, torch.no_grad():
        x = torch.ones(2, 8)
        for _ in range(3):
            phased(x, scale=2.0, mask=torch.ones(8))
        assert phased.misses == 0
        assert torch.equal(phased(-x, scale=0.5)["y"], model(-x, scale=0.5)["y"])
        assert phased.misses > 0


def test_run_computes_a_network_with_state_in_order():
    model, x = Counts().eval(), torch.randn(2, 8)
    plain = copy.deepcopy(model)
    with PhasedModel(model, budget=2 * PAGE, keep=False, threads=1) as phased, use_one_thread(), torch.no_grad():
        for output, expected in zip(phased.run([x, x + 1, x]), [plain(x), plain(x + 1), plain(x)], strict=True):
            assert torch.equal(output.value, expected.value)


@pytest.mark.parametrize("schedule", ["overlapped", "data-parallel", "phased"])
def test_random_numbers_are_those_of_plain_torch(schedule):
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(), nn.Linear(8, 8), nn.BatchNorm1d(8)).train()
    plain = copy.deepcopy(model)
    batches = [torch.randn(4, 8) for _ in range(3)]
    with PhasedModel(model, schedule=schedule, budget=3 * PAGE, threads=1) as phased, use_one_thread(), torch.no_grad():
        torch.manual_seed(1)
        outputs = [*phased.run(batches), phased(batches[0])]
        torch.manual_seed(1)
        for output, expected in zip(outputs, [*map(plain, batches), plain(batches[0])], strict=True):
            assert torch.equal(output, expected)
        assert torch.equal(phased.network[3].running_mean, plain[3].running_mean)


def test_methods_and_names_are_those_of_the_network():
    class Encodes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)))

        def encode(self, x: Tensor) -> Tensor:
            return self.layers[:2](x)

        def forward(self, x: Tensor) -> Tensor:
            return self.layers(x)

    model, x = Encodes().eval(), torch.randn(2, 8)
    with PhasedModel(model, budget=2 * PAGE, keep=False) as phased, torch.no_grad():
        assert isinstance(phased, nn.Module)
        assert torch.equal(phased.encode(x), model.encode(x))
        assert torch.equal(phased(x), model(x))
        for (name, value), (other, expected) in zip(phased.named_parameters(), model.named_parameters(), strict=True):
            assert (name, value.shape, value.dtype) == (other, expected.shape, expected.dtype)
            assert torch.equal(value, expected)
        assert list(phased.state_dict()) == list(model.state_dict())
        outer = nn.Sequential(phased, nn.Linear(8, 8))
        with PhasedModel(outer) as nested:
            assert torch.equal(nested(x), outer(x))
        with pytest.raises(TesseraError, match="cannot be converted"):
            phased.half()
        assert phased.to("cpu") is phased


def test_gradients_of_inputs_are_right():
    model, x = nn.Sequential(*(nn.Linear(8, 8) for _ in range(5))), torch.randn(2, 8)
    first, second = x.clone().requires_grad_(), x.clone().requires_grad_()
    with PhasedModel(model, budget=PAGE, keep=False) as phased:
        phased(first).square().sum().backward()
        phased(x)
    model(second).square().sum().backward()
    torch.testing.assert_close(first.grad, second.grad)


def test_verification_reports_a_difference():
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).eval(), torch.randn(2, 8)
    with torch.no_grad(), PhasedModel(model, verify=True) as phased:
        assert torch.equal(phased(x), model(x))
    with torch.no_grad(), PhasedModel(model, verify=True) as phased:
        model[0].weight.add_(1)
        with pytest.raises(TesseraError, match="differs from the plain network"):
            phased(x)


def test_a_forked_process_gets_an_error():
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).eval(), torch.randn(2, 8)
    with PhasedModel(model, budget=PAGE, keep=False) as phased:
        phased(x)
        child = os.fork()
        if child == 0:
            try:
                phased(x)
            except TesseraError:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_threads_may_call_a_model_at_the_same_time():
    model, inputs = nn.Sequential(*(nn.Linear(8, 8) for _ in range(6))).eval(), torch.randn(4, 2, 8)
    results: list[Tensor] = [torch.zeros(0)] * 4
    with PhasedModel(model, budget=2 * PAGE, keep=False) as phased, torch.no_grad():

        def call(number: int) -> None:
            for _ in range(5):
                with torch.no_grad():
                    results[number] = phased(inputs[number])

        threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for x, result in zip(inputs, results, strict=True):
            assert torch.equal(result, model(x))


def test_a_large_buffer_that_no_file_contains_is_streamed():
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)
            self.register_buffer("table", torch.randn(40_000, 8), persistent=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) + self.table[:2]

    model, x = Table().eval(), torch.randn(2, 8)
    with torch.no_grad(), PhasedModel(model, budget="2MB", keep=False) as phased:
        assert phased.weight_bytes > 1_000_000
        assert torch.equal(phased(x), model(x))
