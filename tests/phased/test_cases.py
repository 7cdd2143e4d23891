"""From options to cases: the defaults, what follows from what, what is refused, and the cores that a case gets."""

from __future__ import annotations

import random

import pytest

from tessera.errors import TesseraError
from tessera.launch import LaunchConfig
from tessera.models import image_size_of
from tessera.phased.cases import cases, launch
from tessera.phased.choices import HOLD_ALL, ONE_DEVICE, SCHEDULES


def one(*names: str, **axes):
    (case,) = cases(names or ("chain",), **{axis: [value] for axis, value in axes.items()})
    return case


def test_without_a_word_it_is_the_chain_that_everybody_knows():
    params = one().params
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
    params = one("efficientnet_b4").params
    assert params["image_size"] == image_size_of("efficientnet_b4")
    assert (params["batch_size"], params["batches_per_step"], params["dtype"]) == (1, 1, "float32")
    assert not {"dsize", "num_layers"} & set(params)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_devices_and_the_stream_follow_from_the_schedule(schedule):
    params = one(schedule=schedule).params
    assert params["devices"] == (1 if schedule in ONE_DEVICE else 2)
    assert ("store" in params) == (schedule not in HOLD_ALL)


def test_what_means_nothing_for_some_schedules_is_left_out_of_their_cases():
    found = cases(schedule=list(SCHEDULES), budget=["1MB"], cold=[True])
    assert len(found) == len(SCHEDULES)
    for case in found:
        streams = case.params["schedule"] not in HOLD_ALL
        assert ("budget" in case.params, case.params.get("cold", False)) == (streams, streams)


def test_every_combination_is_a_case_and_none_comes_twice():
    sizes, batches = random.sample(range(1, 999), 4), random.sample(range(1, 99), 3)
    found = cases(dsize=[*sizes, sizes[0]], batch_size=batches, schedule=["phased", "resident"])
    assert len(found) == len({case.key for case in found}) == 24
    both = cases(["chain", "resnet18"], dsize=sizes)
    assert [case.name for case in both] == ["chain"] * 4 + ["resnet18"]


def test_a_file_of_weights_says_how_they_are_stored():
    assert "dtype" not in one("resnet18", weights="mine.safetensors").params
    with pytest.raises(TesseraError, match="the file says how its weights are stored"):
        one("resnet18", weights="mine.safetensors", dtype="float16")


@pytest.mark.parametrize(
    ("axes", "says"),
    [
        ({"num_layers": 0}, "--num-layers: got 0; allowed: 1 or more"),
        ({"dsize": -3}, "--dsize"),
        ({"batch_size": 0}, "--batch-size"),
        ({"batches_per_step": True}, "--batches-per-step"),
        ({"dtype": "int8"}, "unknown dtype: got 'int8'; allowed: float16"),
        ({"schedule": "phasd"}, "unknown schedule"),
        ({"store": "tape"}, "unknown store"),
        ({"budget": "a lot"}, "not a size in bytes"),
        ({"budget": 0}, "not a size in bytes"),
        ({"devices": 2, "schedule": "overlapped"}, "overlapped runs on one device"),
        ({"cold": True, "store": "host"}, "--cold is of weights on disk"),
        ({"budget": "1MB", "schedule": "resident"}, "--budget has no meaning for resident: nothing is streamed"),
        ({"workers": "processes", "schedule": "overlapped"}, "devices of overlapped are no processes"),
        ({"workers": "processes", "activations": "1MB"}, "share them in memory"),
        ({"activations": "few"}, "not a size in bytes"),
        ({"image_size": 64}, "--image-size has no meaning for chain"),
        ({"weights": "file"}, "--weights has no meaning for chain"),
        ({"dsise": 3}, "did you mean dsize"),
    ],
)
def test_a_mistake_is_named_before_anything_runs(axes, says):
    with pytest.raises(TesseraError, match=says):
        one(**axes)


def test_an_unknown_model_is_named_with_what_was_meant():
    with pytest.raises(TesseraError, match="did you mean resnet50"):
        one("resnet5")
    with pytest.raises(TesseraError, match="--dsize has no meaning for resnet50"):
        one("resnet50", dsize=3)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("threads", [1, 3])
def test_all_schedules_get_the_cores_of_two_devices(schedule, threads):
    made = launch(one(schedule=schedule, threads=threads), LaunchConfig(spawn="torchrun", workers=4))
    assert (made.spawn, made.workers, made.threads) == ("processes", 1, 2 * threads)
    more = launch(one(schedule="data-parallel", devices=3), LaunchConfig())
    assert more.threads == 3
