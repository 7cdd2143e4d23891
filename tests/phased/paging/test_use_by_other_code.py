"""Tests of other code that uses a model: functional calls, files of its state, threads, forks and interrupts."""

from __future__ import annotations

import copy
import os
import signal
import threading
import time

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tessera.errors import TesseraError
from tessera.phased import PhasedModel
from tessera.phased.paging.weight_table import compute_checksum
from tests.phased.random_networks import use_one_thread

PAGE = 4096


def build_chain(layers: int = 6, size: int = 32) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(size, size, bias=False) for _ in range(layers))).eval()


def test_a_functional_call_leaves_weights_streamed():
    model, x = build_chain(), torch.randn(2, 32)
    replaced = {"2.weight": torch.randn(32, 32), "4.weight": torch.randn(32, 32)}
    with PhasedModel(model, budget=2 * PAGE, keep=False, threads=1) as phased, use_one_thread(), torch.no_grad():
        for _ in range(2):
            expected = torch.func.functional_call(model, replaced, (x,))
            assert torch.equal(torch.func.functional_call(phased, replaced, (x,)), expected)
            everything = {name: value + 1 for name, value in model.state_dict().items()}
            expected = torch.func.functional_call(model, everything, (x,))
            assert torch.equal(torch.func.functional_call(phased, everything, (x,)), expected)
            assert torch.equal(phased(x), model(x))
            assert all("weight" in layer._parameters.slots for layer in phased.network)
            assert sum(slot.tensor is not None for slot in phased._copy.slots.values()) <= 2
        phased.network[1].weight = nn.Parameter(torch.zeros(32, 32))
        assert not phased(x).any()


@pytest.mark.parametrize("budget", [PAGE, "1MB"])
def test_safetensors_saves_the_state(budget, tmp_path):
    model, x = build_chain(), torch.randn(2, 32)
    with PhasedModel(model, budget=budget, keep=False) as phased:
        save_file(phased.state_dict(), tmp_path / "saved.safetensors")
        torch.save(phased.state_dict(), tmp_path / "saved.pt")
        assert torch.allclose(phased(x), model(x))
    saved = load_file(tmp_path / "saved.safetensors")
    loaded = torch.load(tmp_path / "saved.pt", weights_only=True)
    for name, value in model.state_dict().items():
        assert torch.equal(saved[name], value)
        assert torch.equal(loaded[name], value)


class WritesLate(nn.Module):
    """A network that writes into a weight without a new version, in a later pass."""

    def __init__(self, write) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(32, 32, bias=False), nn.Linear(32, 32, bias=False)
        self.register_buffer("table", torch.ones(20_000))
        self.calls, self.write = 0, write

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls in (4, 6):
            self.write(self)
        return self.second(self.first(x)) * self.table[:32]


def write_data(network):
    network.first.weight.data.mul_(2)


def replace_data(network):
    network.first.weight.data = torch.ones(32, 32)


def write_numpy(network):
    network.first.weight.detach().numpy()[:] += 1


def write_buffer(network):
    network.table.data.mul_(3)


@pytest.mark.parametrize("write", [write_data, replace_data, write_numpy, write_buffer], ids=lambda f: f.__name__)
@pytest.mark.parametrize("store", ["disk", "mapped"])
def test_late_writes_without_a_version_are_kept(write, store):
    torch.manual_seed(0)
    plain, streamed, x = WritesLate(write).eval(), WritesLate(write).eval(), torch.randn(2, 32)
    streamed.load_state_dict(plain.state_dict())
    with (
        PhasedModel(streamed, budget=20 * PAGE, keep=False, store=store, threads=1) as phased,
        use_one_thread(),
        torch.no_grad(),
    ):
        for _ in range(8):
            assert torch.equal(phased(x), plain(x))


class CallsItself(nn.Module):
    """A network that calls a model in another thread, and waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = build_chain()
        self.model: list[nn.Module] = []

    def forward(self, x: Tensor, again: bool = True) -> Tensor:
        x = self.layers[:3](x)
        results: list[Tensor] = []
        if again and self.model:

            def call() -> None:
                with torch.no_grad():
                    results.append(self.model[0](x, again=False))

            thread = threading.Thread(target=call)
            thread.start()
            thread.join()
        return self.layers[3:](x) + sum(results)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("schedule", ["overlapped", "phased", "data-parallel", "sharded"])
def test_a_network_may_call_its_model_in_another_thread(schedule):
    torch.manual_seed(0)
    model, x = CallsItself().eval(), torch.randn(2, 32)
    with use_one_thread(), torch.no_grad():
        inner = model(model.layers[:3](x), again=False)
        expected = model(x, again=False) + inner
    with PhasedModel(model, schedule=schedule, budget=2 * PAGE, keep=False, threads=1) as phased, torch.no_grad():
        phased.network.model.append(phased)
        for _ in range(2):
            assert torch.allclose(phased(x), expected)
        phased.network.model.clear()
        assert torch.allclose(phased(x), model(x, again=False))


class Slow(nn.Module):
    """A network of slow layers, which records how many of them were computed."""

    def __init__(self, layers: int = 40) -> None:
        super().__init__()
        self.layers = build_chain(layers)
        self.started = threading.Event()
        self.computed: list[int] = []

    def __deepcopy__(self, memo):
        copied = Slow(0)
        memo[id(self)] = copied
        copied.layers = copy.deepcopy(self.layers, memo)
        copied.computed = self.computed
        copied.started = self.started
        return copied.eval()

    def forward(self, x: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers):
            x = layer(x)
            time.sleep(0.1)
            self.computed.append(number)
            self.started.set()
        return x


@pytest.mark.timeout(60)
@pytest.mark.parametrize("phases", [None, ["layers.0"]])
def test_an_interrupt_ends_a_pass_at_the_next_layer(phases):
    model = Slow().eval()
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)

    def interrupt() -> None:
        model.started.wait(20)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    try:
        with PhasedModel(model, schedule="phased", budget=100 * PAGE, keep=False, phases=phases) as phased:
            sender = threading.Thread(target=interrupt)
            sender.start()
            with pytest.raises(KeyboardInterrupt):
                phased(torch.randn(2, 32))
            sender.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert 1 <= len(model.computed) < 20


@pytest.mark.timeout(60)
def test_a_child_forked_during_a_pass_gets_an_error_and_ends():
    model = Slow(5).eval()
    with PhasedModel(model, budget=2 * PAGE, keep=False) as phased:
        caller = threading.Thread(target=phased, args=(torch.randn(2, 32),))
        caller.start()
        model.started.wait(20)
        child = os.fork()
        if child == 0:
            refused = 0
            for use in (phased, phased.network, phased.run):
                try:
                    use([torch.randn(2, 32)] if use == phased.run else torch.randn(2, 32))
                except TesseraError as error:
                    refused += "cannot be used in a forked process" in str(error)
            phased.close()
            phased._closing()
            os._exit(10 + refused)
        deadline = time.monotonic() + 20
        while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
            time.sleep(0.05)
        if ended[0] == 0:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        caller.join()
        assert ended[0] == child
        assert os.waitstatus_to_exitcode(ended[1]) == 13


@pytest.mark.parametrize("shape", [(32, 32), (1024, 2048), (3, 7), (0,)])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16, torch.int8, torch.complex64])
def test_a_checksum_shows_changes(shape, kind):
    value = (torch.randn(shape) * 50).to(kind)
    before = compute_checksum(value)
    assert compute_checksum(value.clone()) == before
    changes = [value * 2, value + 1, value.flip(0)] + [value.clone() for _ in range(2)]
    if value.numel():
        changes[-1].view(-1)[-1] += 1
        changes[-2].view(-1)[value.numel() // 2] += 1
        for changed in changes:
            assert torch.equal(changed, value) or compute_checksum(changed) != before
