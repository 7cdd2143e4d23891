"""A phase holds on to nothing that it needs no more."""

from __future__ import annotations

import weakref

import torch
from torch import Tensor, fx, nn

from tessera.phased import PhasedModel

seen: list[weakref.ref[Tensor]] = []
alive: list[bool] = []


@fx.wrap
def watched(x: Tensor) -> Tensor:
    seen.append(weakref.ref(x))
    return x


@fx.wrap
def looking(x: Tensor) -> Tensor:
    alive.append(any(one() is not None for one in seen))
    return x


class Watched(nn.Module):
    """Its second phase is given a value that only its first call reads."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.third(looking(self.second(watched(self.first(x)))))


def test_what_a_phase_is_given_is_freed_after_its_last_use_in_the_phase():
    seen.clear()
    alive.clear()
    model, x = Watched().eval(), torch.randn(2, 8)
    with torch.no_grad(), PhasedModel(model, budget="1MB", schedule="overlapped", phases=["second"]) as phased:
        found = phased(x)
        assert [phase.modules for phase in phased.phases] == [("first",), ("second", "third")]
    assert len(seen) == 1
    assert alive == [False]
    assert torch.equal(found, model(x))
