"""Tests of skeletons: a skeleton has the structure and the names of a model, but not its weights."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

from tessera.errors import TesseraError
from tessera.phased import PhasedModel
from tessera.phased.network.skeleton import build_skeleton


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("kept", torch.ones(2))
        self.register_buffer("made", torch.full((2,), 7.0), persistent=False)
        self.eval()


def test_a_skeleton_has_no_weights_and_keeps_ties():
    model = Tied()
    weight = weakref.ref(model.first.weight)
    skeleton = build_skeleton(model)
    assert ("first.weight", "second.weight") in skeleton.names
    assert skeleton.model.first.weight is skeleton.model.second.weight
    assert all(tensor.is_meta for tensor in skeleton.model.parameters())
    assert skeleton.model.made.tolist() == [7, 7]
    assert not any("num_batches_tracked" in name for name in skeleton.stored_name)
    assert not model.first.weight.is_meta
    del model
    gc.collect()
    assert weight() is None


def test_a_model_in_training_mode_is_refused():
    with pytest.raises(TesseraError, match="eval"):
        build_skeleton(Tied().train())


def test_a_non_persistent_buffer_needs_values():
    with torch.device("meta"):
        model = Tied()
    with pytest.raises(TesseraError, match="the non-persistent buffer made"):
        build_skeleton(model)


def test_hooks_of_the_model_are_refused_and_hooks_of_layers_run():
    for add in ("register_forward_hook", "register_forward_pre_hook"):
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).eval()
        getattr(model, add)(lambda *args: None)
        with pytest.raises(TesseraError, match="has hooks or a `forward` set on the instance"):
            build_skeleton(model)
    tied = Tied()
    tied.forward = lambda x: x
    with pytest.raises(TesseraError, match="has hooks or a `forward` set on the instance"):
        build_skeleton(tied)
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4))).eval()
    model[1].register_forward_hook(lambda module, inputs, output: output * 2)
    x = torch.randn(3, 4)
    with torch.no_grad(), PhasedModel(model) as phased:
        assert torch.equal(phased(x), model(x))
