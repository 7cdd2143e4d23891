"""Tests of building cases from axes: defaults, dependent values, refused combinations, and the cores of a case."""

from __future__ import annotations

import random

import pytest

from tessera.errors import TesseraError
from tessera.launch import LaunchConfig
from tessera.models import get_image_size
from tessera.phased.cases import cases, launch
from tessera.phased.choices import SCHEDULES


def build_case(*names: str, **axes):
    (case,) = cases(names or ("chain",), **{axis: [value] for axis, value in axes.items()})
    return case


def test_the_default_case_is_the_chain():
    params = build_case().params
    assert params == {
        "batch_size": 32,
        "dsize": 250,
        "num_layers": 3,
        "batches_per_step": 100,
        "dtype": "float16",
        "schedule": "phased",
        "devices": 2,
        "store": "disk",
    }


def test_a_network_has_its_own_defaults():
    params = build_case("efficientnet_b4").params
    assert params["image_size"] == get_image_size("efficientnet_b4")
    assert (params["batch_size"], params["batches_per_step"], params["dtype"]) == (1, 1, "float32")
    assert not {"dsize", "num_layers"} & set(params)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_devices_and_the_stream_follow_from_the_schedule(schedule):
    params = build_case(schedule=schedule).params
    assert params["devices"] == SCHEDULES[schedule].default_devices
    assert ("store" in params) == (not SCHEDULES[schedule].holds_all_weights)


def test_axes_that_do_not_apply_to_a_schedule_are_omitted_from_its_cases():
    chosen = cases(schedule=list(SCHEDULES), budget=["1MB"], cold=[True])
    assert len(chosen) == len(SCHEDULES)
    for case in chosen:
        streams = not SCHEDULES[case.params["schedule"]].holds_all_weights
        assert ("budget" in case.params, case.params.get("cold", False)) == (streams, streams)


def test_every_combination_is_a_case_and_none_comes_twice():
    sizes, batches = random.sample(range(1, 999), 4), random.sample(range(1, 99), 3)
    chosen = cases(dsize=[*sizes, sizes[0]], batch_size=batches, schedule=["phased", "resident"])
    assert len(chosen) == len({case.key for case in chosen}) == 24
    both = cases(["chain", "resnet18"], dsize=sizes)
    assert [case.name for case in both] == ["chain"] * 4 + ["resnet18"]


def test_the_store_follows_from_the_weights_file():
    assert "dtype" not in build_case("resnet18", weights="mine.safetensors").params
    with pytest.raises(TesseraError, match="the file determines the dtype"):
        build_case("resnet18", weights="mine.safetensors", dtype="float16")


@pytest.mark.parametrize(
    ("axes", "says"),
    [
        ({"num_layers": 0}, "--num-layers: got 0; allowed: 1 or more"),
        ({"dsize": -3}, "--dsize"),
        ({"batch_size": 0}, "--batch-size"),
        ({"batches_per_step": True}, "--batches-per-step"),
        ({"dtype": "int16"}, "unknown dtype: got 'int16'; allowed: float16"),
        ({"schedule": "phasd"}, "unknown schedule"),
        ({"store": "tape"}, "unknown weight store"),
        ({"budget": "a lot"}, "invalid size in bytes"),
        ({"budget": 0}, "invalid size in bytes"),
        ({"devices": 2, "schedule": "overlapped"}, "overlapped runs on one device"),
        ({"cold": True, "store": "host"}, "--cold applies only to --weight-store disk"),
        (
            {"budget": "1MB", "schedule": "resident"},
            "--weight-budget applies only to schedules that stream weights: got 'resident'",
        ),
        ({"image_size": 64}, "--image-size applies only to --model: got 'chain'"),
        ({"weights": "file"}, "--weights applies only to --model: got 'chain'"),
        ({"dsise": 3}, "did you mean dsize"),
    ],
)
def test_invalid_values_are_refused_before_anything_runs(axes, says):
    with pytest.raises(TesseraError, match=says):
        build_case(**axes)


def test_an_unknown_model_is_an_error_with_a_suggestion():
    with pytest.raises(TesseraError, match="did you mean resnet50"):
        build_case("resnet5")
    with pytest.raises(TesseraError, match="--dsize applies only to chain: got '--model'"):
        build_case("resnet50", dsize=3)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("threads", [1, 3])
def test_all_schedules_get_the_cores_of_two_devices(schedule, threads):
    config = launch(build_case(schedule=schedule, threads=threads), LaunchConfig(spawn="torchrun", workers=4))
    assert (config.spawn, config.workers, config.threads) == ("processes", 1, 2 * threads)
    more = launch(build_case(schedule="data-parallel", devices=3), LaunchConfig())
    assert more.threads == 3
