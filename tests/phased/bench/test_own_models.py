"""Networks of a user's own are measured like those of the catalogue."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from tessera.errors import TesseraError
from tessera.models import build
from tessera.phased.profile.directory import profile_of
from tests.phased.bench import own
from tests.phased.bench.test_run import measure

pytestmark = pytest.mark.timeout(120)
SMALL = {"image_size": 8, "batch_size": 2}


def spec(network: type[torch.nn.Module]) -> str:
    return f"{own.__name__}:{network.__name__}"


@pytest.mark.parametrize("schedule", ["overlapped", "phased"])
def test_a_layer_that_is_called_twice(schedule):
    found = measure(spec(own.Twice), schedule=schedule, **SMALL)
    profile = profile_of(found)
    assert profile is not None
    assert [part.name for part in profile.parts] == ["conv", "conv", "last"]
    assert found.metrics["error"].value <= 1e-5


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_tied_weights_buffers_without_a_file_and_outputs_of_several_tensors(dtype):
    found = measure(spec(own.Tied), schedule="overlapped", dtype=dtype, **SMALL)
    assert found.metrics["error"].value <= 1e-5
    numbers = 3 * 3 * 9 + 2 * 3 + 3
    assert found.metrics["weights"].value == numbers * getattr(torch, dtype).itemsize


def test_a_file_of_their_weights(tmp_path):
    state = build(spec(own.Tied), seed=5).state_dict()
    del state["second.weight"], state["second.scale"]  # as safetensors has tied weights
    save_file(state, tmp_path / "w.safetensors")
    found = measure(spec(own.Tied), schedule="overlapped", weights=str(tmp_path / "w.safetensors"), **SMALL)
    assert found.metrics["error"].value <= 1e-5


def test_mini_batches_that_can_be_divided_where_samples_cannot():
    measured = {"schedule": "data-parallel", **SMALL}
    assert measure(spec(own.Mixes), batches_per_step=2, **measured).metrics["error"].value <= 1e-5
    with pytest.raises(TesseraError, match="may mix them"):
        measure(spec(own.Mixes), batches_per_step=1, **measured)


def test_a_network_that_writes_into_its_input():
    found = measure(spec(own.Writes), schedule="overlapped", batches_per_step=6, **SMALL)
    assert found.metrics["error"].value <= 1e-5


def test_a_file_of_double_precision_is_computed_in_it(tmp_path):
    state = {name: value.double() for name, value in build(spec(own.Twice), seed=5).state_dict().items()}
    save_file(state, tmp_path / "w.safetensors")
    found = measure(spec(own.Twice), schedule="overlapped", weights=str(tmp_path / "w.safetensors"), **SMALL)
    assert found.metrics["error"].value <= 1e-12
    assert found.metrics["weights"].value == sum(value.nbytes for value in state.values())


def test_devices_that_are_processes_have_buffers_without_a_file():
    found = measure(spec(own.Sized), schedule="phased", workers="processes", **SMALL)
    assert found.metrics["error"].value <= 1e-5
