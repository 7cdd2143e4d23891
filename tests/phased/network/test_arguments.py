"""A call is bound as Python would bind it; what may be left out of it is traced as left out."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tessera.errors import TesseraError
from tessera.phased import PhasedModel


class Optional(nn.Module):
    """Takes a mask, a shift that has to be named, and whatever else."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x, mask=None, scale=2.0, *more, shift, **rest):
        y = self.layer(x) * scale + shift
        if mask is not None:
            y = y * mask
        return y, dict(rest), list(more)


@pytest.fixture
def opened():
    model = Optional()
    with PhasedModel(model, threads=1) as phased:
        yield model, phased


def test_a_call_without_them_is_that_of_the_network(opened):
    model, phased = opened
    x, shift = torch.randn(2, 4), torch.randn(4)
    for args, kwargs in (((x,), {}), ((x, None, 0.5), {}), ((), {"x": x, "scale": 3.0})):
        with torch.no_grad():
            found, wanted = phased(*args, shift=shift, **kwargs), model(*args, shift=shift, **kwargs)
        torch.testing.assert_close(found[0], wanted[0])
        assert found[1:] == wanted[1:]


@pytest.mark.parametrize(
    ("args", "kwargs", "got"), [((1,), {}, "mask"), ((None, 1.0, 2), {}, "more"), ((), {"other": 1}, "rest")]
)
def test_a_call_with_them_is_refused(opened, args, kwargs, got):
    _, phased = opened
    with pytest.raises(TesseraError, match=f"traced without what may be left out of a call: got '{got}'"):
        phased(torch.randn(2, 4), *args, shift=0.0, **kwargs)


def test_a_missing_argument_is_said(opened):
    _, phased = opened
    with pytest.raises(TesseraError, match=r"missing a required .*argument.*shift"):
        phased(torch.randn(2, 4))
