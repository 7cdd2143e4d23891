"""Tests of measuring cases: every schedule on small networks gives consistent metrics."""

from __future__ import annotations

import random

import pytest
import torch
from safetensors.torch import save_file

from tessera.errors import BenchmarkFailed, TesseraError
from tessera.launch.worker import RunContext
from tessera.machine import save_host
from tessera.measure.environment import compute_host_fingerprint, describe_environment
from tessera.measure.samples import Sampling
from tessera.models import build
from tessera.phased import write_weights
from tessera.phased.bench.run import run_case
from tessera.phased.bench.workload import Workload
from tessera.phased.cases import cases
from tessera.phased.choices import SCHEDULES, WEIGHT_DTYPES
from tessera.phased.profile.pass_profile import get_profile
from tessera.phased.store.encoding import ENCODINGS
from tessera.results.record import Record
from tests.phased.bench.test_metrics import MACHINE

pytestmark = pytest.mark.timeout(120)
TWO_ITERATIONS = Sampling(warmup=1, iterations=2)
SMALL = {"dsize": 16, "num_layers": 3, "batch_size": 2, "batches_per_step": 2}


def measure_case(*names: str, sampling: Sampling = TWO_ITERATIONS, **axes) -> Record:
    axes = axes if names else SMALL | axes
    (case,) = cases(names or ("chain",), **{axis: [value] for axis, value in axes.items()})
    return run_case(RunContext(), case, sampling)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", WEIGHT_DTYPES)
def test_the_chain_is_measured_with_every_schedule(schedule, dtype):
    record = measure_case(schedule=schedule, dtype=dtype)
    assert record.status == "ok"
    metrics = {name: metric.value for name, metric in record.metrics.items()}
    assert len(record.values) == 2
    width = 4 if dtype in ENCODINGS else getattr(torch, dtype).itemsize  # such small weights are not encoded
    flops, moved = 3 * 2 * 2 * 2 * 16**3, 3 * 16 * 16 * width
    assert (metrics["flops"], metrics["phases"]) == (flops, 3)
    assert metrics["items"] == pytest.approx(4 / metrics["time"])
    assert metrics["efficiency"] == pytest.approx(metrics["ideal"] / metrics["time"])
    assert metrics["error"] <= 1e-5
    streams = not SCHEDULES[schedule].holds_all_weights
    assert ("bytes" in metrics) == streams
    profile = get_profile(record)
    assert profile is not None
    assert profile.ideal == pytest.approx(metrics["ideal"])
    if streams:
        assert (metrics["bytes"], metrics["flops_per_byte"]) == (moved, flops / moved)
        assert metrics["ideal"] >= max(metrics["load"], metrics["compute"])
        assert {event.kind for event in profile.events} >= {"load", "compute"}
        assert record.details["storage"] == "warm disk"
    else:
        assert metrics["ideal"] == pytest.approx(metrics["compute"])
        assert record.details["storage"] == "in memory"
    assert ("float32 computed" in str(record.details["arithmetic"])) == (width == 2)
    assert any("float32 computed" in note for note in record.notes) == (width == 2)


@pytest.mark.parametrize(
    ("store", "cold", "words"),
    [("host", False, "host memory"), ("disk", True, "cold disk"), ("mapped", False, "warm disk, mapped")],
)
def test_the_storage_of_weights_is_recorded(store, cold, words):
    assert measure_case(store=store, cold=cold).details["storage"] == words


@pytest.mark.parametrize(
    ("schedule", "dtype"), [("phased", "float16"), pytest.param("sharded", "float32", marks=pytest.mark.slow)]
)
def test_both_devices_are_profiled(schedule, dtype):
    record = measure_case(schedule=schedule, dtype=dtype)
    profile = get_profile(record)
    assert profile is not None
    assert profile.devices == [0, 1]
    assert record.metrics["error"].value <= 1e-5


def test_a_network_is_streamed_from_its_own_file(tmp_path):
    path = tmp_path / "weights.safetensors"
    write_weights(path, build("resnet18", seed=random.randrange(99)), dtype="bfloat16")
    record = measure_case("resnet18", weights=str(path), image_size=32, schedule="overlapped", budget="20MB")
    assert record.metrics["error"].value <= 1e-5
    assert 0 < record.metrics["working_memory"].value <= 20e6
    assert "bfloat16" in str(record.details["arithmetic"])
    assert record.metrics["weights"].value == pytest.approx(path.stat().st_size, rel=0.01)


@pytest.mark.parametrize("schedule", ["phased", "overlapped"])
def test_the_default_budget_suffices_for_a_file_of_another_program(schedule, tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file(build("resnet18").state_dict(), path)  # the tensors of this file are not page-aligned
    record = measure_case("resnet18", weights=str(path), image_size=32, schedule=schedule)
    assert record.metrics["error"].value <= 1e-5
    assert record.metrics["working_memory"].value < 0.6 * record.metrics["weights"].value


def test_the_default_budget_is_smaller_than_most_weights():
    record = measure_case("resnet18", image_size=32, schedule="overlapped")
    assert record.metrics["working_memory"].value < 0.5 * record.metrics["weights"].value
    assert record.metrics["bytes"].value > 0.5 * record.metrics["weights"].value


def test_a_budget_below_the_largest_layer_is_refused():
    with pytest.raises(TesseraError, match="does not fit into the budget"):
        measure_case("resnet18", image_size=32, schedule="overlapped", budget="1MB")


def test_a_missing_tensor_is_named(tmp_path):
    path = tmp_path / "weights.safetensors"
    write_weights(path, build("resnet34"))
    with pytest.raises(TesseraError, match="does not match the model"):
        measure_case("resnet50", weights=str(path), image_size=32)


def test_a_wrong_output_is_an_error(monkeypatch):
    plain = Workload.build_plain_network
    monkeypatch.setattr(
        Workload, "build_plain_network", lambda self: torch.nn.Sequential(plain(self), torch.nn.Hardtanh(-0.01, 0.01))
    )
    with pytest.raises(BenchmarkFailed, match="differs from plain torch by"):
        measure_case()


def test_no_file_is_left_after_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    measure_case()
    with pytest.raises(TesseraError):
        measure_case(num_layers=2, budget="1KB")
    assert list(tmp_path.iterdir()) == []
    (case,) = cases(**{axis: [value] for axis, value in SMALL.items()})
    with Workload.from_case(
        case
    ).open_weights_file():  # no file while it is in use either: a killed process cleans nothing up
        assert list(tmp_path.iterdir()) == []


def test_the_chain_is_reproducible_and_its_layers_differ():
    (case,) = cases(**{axis: [value] for axis, value in SMALL.items()})
    first, second = (Workload.from_case(case).build_plain_network() for _ in range(2))
    values = list(first.parameters())
    assert all(torch.equal(a, b) for a, b in zip(values, second.parameters(), strict=True))
    assert not torch.equal(values[0], values[1])


def test_a_record_carries_the_prediction_of_a_calibrated_host():
    assert measure_case().predicted == {}
    save_host(MACHINE, compute_host_fingerprint(describe_environment()))
    warm, cold = measure_case(dtype="float32"), measure_case(dtype="float32", cold=True)
    moved = warm.metrics["bytes"].value
    assert warm.predicted["load"].value == pytest.approx(moved / 4e6)
    assert cold.predicted["load"].value == pytest.approx(moved / 1e6)
    assert warm.predicted["time"].value >= warm.predicted["load"].value
    assert "load" not in measure_case(schedule="resident", dtype="float32").predicted
