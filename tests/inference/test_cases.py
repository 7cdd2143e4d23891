"""Tests of the expansion of axes to cases: all combinations, options that override configs, and unknown names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.errors import TesseraError
from tessera.inference.cases import AXES, cases, get_task, launch_inline
from tessera.launch import LaunchConfig


def test_every_combination_is_a_case():
    expanded = cases(model=["resnet18", "resnet50"], batch_size=[1, 4], engine=["torch-eager"], num_replicas=[1, 2])
    assert len({case.key for case in expanded}) == 8
    assert {case.name for case in expanded} == {"resnet18", "resnet50"}
    assert all("model" not in case.params for case in expanded)


def test_options_override_the_config():
    (case,) = cases(["resnet50"], precision=["32.32"], batch_size=[8])
    task = get_task(case)
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
def test_a_case_converts_back_to_its_parameters(batch, replicas, mode, data):
    (case,) = cases(model=["resnet18"], batch_size=[batch], num_replicas=[replicas], mode=[mode], data=[data])
    task = get_task(case)
    assert (task.settings.batch_size, task.settings.data) == (batch, data)
    assert (task.placement.num_replicas, task.load.mode) == (replicas, mode)


@pytest.mark.parametrize(
    ("axes", "says"),
    [
        ({"batchsize": [1]}, "did you mean batch_size"),
        ({"batch_size": 8}, "must be a list of values"),
        ({"model": "resnet50"}, "must be a list of values"),
        ({"batch_size": [0]}, "--batch-size: got 0"),
        ({"engine": ["onnxruntme"]}, "did you mean onnxruntime"),
        ({"mode": ["fast"]}, "unknown mode"),
        ({"num_replicas": [0]}, "--num-replicas: got 0"),
        ({"engine": []}, "--engine has no values"),
    ],
)
def test_unknown_axes_and_values_are_refused(axes, says):
    with pytest.raises(TesseraError, match=says):
        cases(**axes)


def test_axis_names_are_unique():
    names = [axis.name for axis in AXES]
    assert len(set(names)) == len(names)


def test_a_case_runs_in_the_calling_process():
    (case,) = cases(model=["resnet18"], num_replicas=[2])
    base = LaunchConfig(pin=False, tag_output=True, threads=3)
    expanded = launch_inline(case, base)
    assert (expanded.spawn, expanded.workers) == ("inline", 1)
