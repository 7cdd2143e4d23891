"""A skeleton has the structure and the names of a model, and none of its weights."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

from tessera.errors import TesseraError
from tessera.phased import PhasedModel
from tessera.phased.network.skeleton import skeleton_of


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("kept", torch.ones(2))
        self.register_buffer("made", torch.full((2,), 7.0), persistent=False)
        self.eval()


def test_weights_are_left_behind_and_ties_are_kept():
    model = Tied()
    weight = weakref.ref(model.first.weight)
    found = skeleton_of(model)
    assert ("first.weight", "second.weight") in found.names
    assert found.model.first.weight is found.model.second.weight
    assert all(tensor.is_meta for tensor in found.model.parameters())
    assert found.model.made.tolist() == [7, 7]
    assert not any("num_batches_tracked" in name for name in found.stored_name)
    assert not model.first.weight.is_meta
    del model
    gc.collect()
    assert weight() is None


def test_a_model_in_training_mode_is_refused():
    with pytest.raises(TesseraError, match="eval"):
        skeleton_of(Tied().train())


def test_a_buffer_that_no_file_holds_needs_values():
    with torch.device("meta"):
        model = Tied()
    with pytest.raises(TesseraError, match="the buffer made"):
        skeleton_of(model)


def test_what_was_added_to_the_whole_model_is_refused_and_to_a_layer_it_runs():
    for add in ("register_forward_hook", "register_forward_pre_hook"):
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).eval()
        getattr(model, add)(lambda *args: None)
        with pytest.raises(TesseraError, match="has hooks of its own"):
            skeleton_of(model)
    other = Tied()
    other.forward = lambda x: x
    with pytest.raises(TesseraError, match="has hooks of its own or a `forward`"):
        skeleton_of(other)
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4))).eval()
    model[1].register_forward_hook(lambda module, given, found: found * 2)
    x = torch.randn(3, 4)
    with torch.no_grad(), PhasedModel(model) as phased:
        assert torch.equal(phased(x), model(x))
