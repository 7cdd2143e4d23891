"""Test of the lifetime of activations: they are freed after their last use, as in plain torch."""

from __future__ import annotations

import weakref

import torch
from torch import Tensor, nn

from tessera.phased import PhasedModel

seen: list[weakref.ref[Tensor]] = []
alive: list[bool] = []


def watch(x: Tensor) -> Tensor:
    seen.append(weakref.ref(x))
    return x


def record_alive(x: Tensor) -> Tensor:
    alive.append(any(reference() is not None for reference in seen))
    return x


class Watched(nn.Module):
    """A network in which the input of the second phase is read only by the first call of that phase."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.third(record_alive(self.second(watch(self.first(x)))))


def test_an_input_of_a_phase_is_freed_after_its_last_use():
    seen.clear()
    alive.clear()
    model, x = Watched().eval(), torch.randn(2, 8)
    with torch.no_grad(), PhasedModel(model, budget="1MB", schedule="overlapped", phases=["second"]) as phased:
        output = phased(x)
        assert [phase.modules for phase in phased.phases] == [("first",), ("second", "third")]
    assert len(seen) == 1
    assert alive == [False]
    assert torch.equal(output, model(x))
