"""Tests of measuring custom networks (`module:callable`): they are measured like networks of the catalogue."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from tessera.errors import TesseraError
from tessera.models import build
from tessera.phased.profile.pass_profile import get_profile
from tests.phased.bench import custom_models
from tests.phased.bench.test_run import measure_case

pytestmark = pytest.mark.timeout(120)
SMALL = {"image_size": 8, "batch_size": 2}


def name_model(network: type[torch.nn.Module]) -> str:
    return f"{custom_models.__name__}:{network.__name__}"


@pytest.mark.parametrize("schedule", ["overlapped", "phased"])
def test_a_layer_that_is_called_twice_is_measured(schedule):
    record = measure_case(name_model(custom_models.Twice), schedule=schedule, **SMALL)
    profile = get_profile(record)
    assert profile is not None
    assert [part.name for part in profile.phases] == ["conv", "last"]
    assert record.metrics["error"].value <= 1e-5


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_tied_weights_non_persistent_buffers_and_several_outputs_are_measured(dtype):
    record = measure_case(name_model(custom_models.Tied), schedule="overlapped", dtype=dtype, **SMALL)
    assert record.metrics["error"].value <= 1e-5
    numbers = 3 * 3 * 9 + 2 * 3 + 3
    assert record.metrics["weights"].value == numbers * getattr(torch, dtype).itemsize


def test_custom_models_can_use_weights_files(tmp_path):
    state = build(name_model(custom_models.Tied), seed=5).state_dict()
    del state["second.weight"], state["second.scale"]  # safetensors stores tied weights once
    save_file(state, tmp_path / "w.safetensors")
    record = measure_case(
        name_model(custom_models.Tied), schedule="overlapped", weights=str(tmp_path / "w.safetensors"), **SMALL
    )
    assert record.metrics["error"].value <= 1e-5


@pytest.mark.parametrize("schedule", ["overlapped", "data-parallel", "resident"])
def test_a_network_may_bring_its_inputs(schedule):
    record = measure_case(f"{custom_models.__name__}:build_text", schedule=schedule, batches_per_step=3)
    assert record.metrics["error"].value <= 1e-5
    time = record.metrics["time"].value
    assert record.metrics["items"].value == pytest.approx(4 * 3 / time, rel=0.5)
    assert "flops" not in record.metrics  # not counted, so not stated
    assert any("those of the model's function" in note for note in record.notes)


def test_the_phases_of_a_learnt_order_are_measured_in_isolation():
    record = measure_case(f"{custom_models.__name__}:build_reversed", schedule="overlapped", budget="20KB")
    profile = get_profile(record)
    assert profile is not None
    assert [phase.name for phase in profile.phases] == [f"layers.{number}" for number in (4, 3, 2, 1, 0)]
    assert all(phase.compute > 0 for phase in profile.phases)


def test_a_function_that_returns_no_model_is_an_error():
    with pytest.raises(
        TesseraError, match=r"does not return a torch\.nn\.Module, alone or with its inputs: got 'tuple'"
    ):
        build(f"{custom_models.__name__}:build_pair")


def test_mini_batches_are_split_if_samples_cannot_be():
    measured = {"schedule": "data-parallel", **SMALL}
    for batches in (1, 2):
        record = measure_case(name_model(custom_models.Mixes), batches_per_step=batches, **measured)
        assert record.metrics["error"].value <= 1e-5


def test_a_network_that_writes_into_its_input_is_measured():
    record = measure_case(name_model(custom_models.Writes), schedule="overlapped", batches_per_step=6, **SMALL)
    assert record.metrics["error"].value <= 1e-5


def test_a_file_of_double_precision_is_computed_in_it(tmp_path):
    state = {
        name: value.double() for name, value in build(name_model(custom_models.Twice), seed=5).state_dict().items()
    }
    save_file(state, tmp_path / "w.safetensors")
    record = measure_case(
        name_model(custom_models.Twice), schedule="overlapped", weights=str(tmp_path / "w.safetensors"), **SMALL
    )
    assert record.metrics["error"].value <= 1e-12
    assert record.metrics["weights"].value == sum(value.nbytes for value in state.values())


def test_devices_have_non_persistent_buffers():
    record = measure_case(name_model(custom_models.Sized), schedule="phased", **SMALL)
    assert record.metrics["error"].value <= 1e-5
