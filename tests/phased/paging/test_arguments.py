"""Tests of call arguments: a call of a PhasedModel takes the arguments of the network."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tessera.phased import PhasedModel


class Optional(nn.Module):
    """A network with an optional mask, a keyword-only shift, `*args` and `**kwargs`."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x, mask=None, scale=2.0, *more, shift, **rest):
        y = self.layer(x) * scale + shift
        if mask is not None:
            y = y * mask
        return y, dict(rest), list(more)


@pytest.fixture
def models():
    model = Optional()
    with PhasedModel(model, threads=1) as phased:
        yield model, phased


def test_a_call_with_any_arguments_equals_torch(models):
    model, phased = models
    x, shift = torch.randn(2, 4), torch.randn(4)
    for args, kwargs in (
        ((x,), {}),
        ((x, None, 0.5), {}),
        ((), {"x": x, "scale": 3.0}),
        ((x, torch.rand(4)), {}),
        ((x, None, 1.0, 2), {}),
        ((x,), {"other": 1}),
    ):
        with torch.no_grad():
            outputs, expected = phased(*args, shift=shift, **kwargs), model(*args, shift=shift, **kwargs)
        torch.testing.assert_close(outputs[0], expected[0])
        assert outputs[1:] == expected[1:]


def test_a_missing_argument_is_named(models):
    _, phased = models
    with pytest.raises(TypeError, match=r"missing 1 required keyword-only argument: 'shift'"):
        phased(torch.randn(2, 4))
