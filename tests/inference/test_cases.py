"""From axes to cases and back: every combination, configs below what is given, and names that are not axes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.errors import TesseraError
from tessera.inference.cases import AXES, cases, launch, task_of
from tessera.inference.replicas.placement import ASKED
from tessera.launch import LaunchConfig


def test_every_combination_is_a_case():
    found = cases(model=["resnet18", "resnet50"], batch_size=[1, 4], engine=["torch-eager"], num_replicas=[1, 2])
    assert len({case.key for case in found}) == 8
    assert {case.name for case in found} == {"resnet18", "resnet50"}
    assert all("model" not in case.params for case in found)


def test_a_config_is_below_what_is_given():
    (case,) = cases(["resnet50"], precision=["32.32"], batch_size=[8])
    task = task_of(case)
    assert (task.settings.model, task.settings.precision, task.settings.batch_size) == ("resnet50", "32.32", 8)
    assert task.settings.eight_bit_io
    several = cases(["resnet50", "efficientnet-b0"])
    assert [one.name for one in several] == ["resnet50", "efficientnet_b0"]


@given(
    st.integers(1, 64),
    st.integers(1, 8),
    st.sampled_from(["offline", "single-stream"]),
    st.sampled_from(["generated", "synthetic"]),
)
def test_a_case_gives_back_what_it_was_made_of(batch, replicas, mode, data):
    (case,) = cases(model=["resnet18"], batch_size=[batch], num_replicas=[replicas], mode=[mode], data=[data])
    task = task_of(case)
    assert (task.settings.batch_size, task.settings.data) == (batch, data)
    assert (task.placement.num_replicas, task.load.mode) == (replicas, mode)


@pytest.mark.parametrize(
    ("axes", "says"),
    [
        ({"batchsize": [1]}, "did you mean batch_size"),
        ({"batch_size": 8}, "is a list of values"),
        ({"model": "resnet50"}, "is a list of values"),
        ({"batch_size": [0]}, "--batch-size: got 0"),
        ({"engine": ["onnxruntme"]}, "did you mean onnxruntime"),
        ({"mode": ["fast"]}, "--mode"),
        ({"num_replicas": [0]}, "--num-replicas: got 0"),
        ({"engine": []}, "engine of an inference case has no values"),
    ],
)
def test_what_is_not_an_axis_or_not_a_value_is_refused(axes, says):
    with pytest.raises(TesseraError, match=says):
        cases(**axes)


def test_axes_have_names_of_their_own():
    assert len(set(AXES)) == len(AXES)


def test_a_case_is_conducted_from_here_and_told_how_the_run_launches():
    (case,) = cases(model=["resnet18"], num_replicas=[2])
    base = LaunchConfig(pin=False, tag_output=True, threads=3)
    found = launch(case, base)
    assert (found.spawn, found.workers) == ("inline", 1)
    assert ASKED.get() == base
    ASKED.set(LaunchConfig())
