"""Tests of Ctrl-C during a pass: the devices stop, and the next call works."""

from __future__ import annotations

import signal
import threading
import time

import pytest
import torch
from torch import fx, nn

from tessera.phased import PhasedModel
from tessera.phased.choices import SCHEDULES
from tests.phased.random_networks import use_one_thread

entered, go_on = threading.Event(), threading.Event()


@fx.wrap
def hold_device(x):
    """Block the device until the test lets it continue."""
    entered.set()
    go_on.wait(20)
    return x


class Held(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))

    def forward(self, x):
        for number, layer in enumerate(self.layers):
            x = hold_device(layer(x)) if number == 1 else layer(x)
        return x


def send_interrupt() -> None:
    """Interrupt the main thread as Ctrl-C does, but by SIGUSR1, because SIGINT may be ignored in test runs."""
    entered.wait(20)
    time.sleep(0.05)  # give the main thread time to start waiting
    signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
    time.sleep(0.1)  # a main thread that does not wait for the devices would start the next call here
    go_on.set()


@pytest.fixture
def interruptible():
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("schedule", "dtype"), [*((schedule, "float32") for schedule in SCHEDULES), ("data-parallel", "float16")]
)
def test_the_next_call_after_an_interrupt_works(schedule, dtype, interruptible):
    torch.manual_seed(0)
    model = Held()
    kind = getattr(torch, dtype)
    for value in model.parameters():
        value.data.copy_(value.data.to(kind))
    batches = [torch.randn(3, 4) for _ in range(2)]
    go_on.set()
    with use_one_thread(), torch.no_grad():
        expected = [model(batch) for batch in batches]
    budget = PhasedModel.compute_min_budget(model, schedule=schedule, dtype=dtype)
    with PhasedModel(model, schedule=schedule, budget=budget, dtype=dtype, keep=False, threads=1) as phased:
        entered.clear()
        go_on.clear()
        sender = threading.Thread(target=send_interrupt)
        sender.start()
        with pytest.raises(KeyboardInterrupt):
            phased.run(batches)
        for _ in range(2):
            assert all(map(torch.equal, phased.run(batches), expected))
        sender.join()
