"""Ctrl-C in the middle of a pass: the devices come to rest, and the next call is like any other."""

from __future__ import annotations

import signal
import threading
import time

import pytest
import torch
from torch import fx, nn

from tessera.phased import PhasedModel
from tessera.phased.choices import SCHEDULES
from tests.phased.drawn import one_thread

entered, go_on = threading.Event(), threading.Event()


@fx.wrap
def held(x):
    """Keeps a device at it until it may go on."""
    entered.set()
    go_on.wait(20)
    return x


class Held(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))

    def forward(self, x):
        for number, layer in enumerate(self.layers):
            x = held(layer(x)) if number == 1 else layer(x)
        return x


def interrupt() -> None:
    """As Ctrl-C does; by another signal, because those who run tests may ignore that one."""
    entered.wait(20)
    time.sleep(0.05)  # until the caller waits
    signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
    time.sleep(0.1)  # whoever does not wait for the devices calls again meanwhile
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
def test_the_next_call_after_an_interruption_is_like_any_other(schedule, dtype, interruptible):
    torch.manual_seed(0)
    model = Held()
    kind = getattr(torch, dtype)
    for value in model.parameters():
        value.data.copy_(value.data.to(kind))
    batches = [torch.randn(3, 4) for _ in range(2)]
    go_on.set()
    with one_thread(), torch.no_grad():
        expected = [model(batch) for batch in batches]
    budget = PhasedModel.least_budget(model, schedule=schedule, dtype=dtype)
    with PhasedModel(model, schedule=schedule, budget=budget, dtype=dtype, keep=False, threads=1) as phased:
        entered.clear()
        go_on.clear()
        other = threading.Thread(target=interrupt)
        other.start()
        with pytest.raises(KeyboardInterrupt):
            phased.run(batches)
        for _ in range(2):
            assert all(map(torch.equal, phased.run(batches), expected))
        other.join()
