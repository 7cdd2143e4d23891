"""Tests of copies on the meta device: they have the structure of a network, but not its weights."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

from tessera.errors import TesseraError
from tessera.phased import PhasedModel
from tessera.phased.paging.meta_copy import copy_to_meta
from tests.phased.random_networks import use_one_thread


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("kept", torch.ones(2))
        self.register_buffer("again", self.kept)
        self.register_buffer("made", torch.full((2,), 7.0), persistent=False)
        self.eval()


def test_a_copy_has_no_weights_and_keeps_ties():
    model = Tied()
    weight = weakref.ref(model.first.weight)
    for dtype in (None, torch.float64):
        copied = copy_to_meta(model, dtype)
        assert copied.first.weight is copied.second.weight
        assert copied.kept is copied.again
        assert all(tensor.is_meta for tensor in (*copied.parameters(), copied.kept))
        assert {tensor.dtype for tensor in (*copied.parameters(), copied.kept, copied.made)} == {dtype or torch.float32}
        assert copied.made.tolist() == [7, 7]
    assert not model.first.weight.is_meta
    del model
    gc.collect()
    assert weight() is None


def test_a_non_persistent_buffer_needs_values(tmp_path):
    with torch.device("meta"):
        model = Tied()
    with pytest.raises(TesseraError, match="the non-persistent buffer made"):
        PhasedModel(model, path=tmp_path / "w")


@pytest.mark.parametrize("schedule", ["overlapped", "data-parallel"])
def test_hooks_of_the_network_and_of_layers_run(schedule):
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4))).eval()
    model.register_forward_pre_hook(lambda module, inputs: (inputs[0] + 1,))
    model.register_forward_hook(lambda module, inputs, output: output - 3)
    model[1].register_forward_hook(lambda module, inputs, output: output * 2)
    x = torch.randn(3, 4)
    with use_one_thread(), torch.no_grad(), PhasedModel(model, schedule=schedule, threads=1) as phased:
        for _ in range(3):
            torch.testing.assert_close(phased(x), model(x))
