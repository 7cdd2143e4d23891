"""Cases measured for real: every schedule on small networks, and figures that fit together."""

from __future__ import annotations

import random

import pytest
import torch
from safetensors.torch import save_file

from tessera.errors import BenchmarkFailed, TesseraError
from tessera.launch import Worker
from tessera.machine import save_host
from tessera.measure.environment import environment, host_fingerprint
from tessera.measure.samples import Sampling
from tessera.measure.sync import ALONE
from tessera.models import build
from tessera.phased import write_weights
from tessera.phased.bench.run import run_case
from tessera.phased.bench.workload import Workload
from tessera.phased.cases import cases
from tessera.phased.choices import DTYPES, HOLD_ALL, SCHEDULES
from tessera.phased.profile.directory import profile_of
from tessera.results.record import Record
from tests.phased.bench.test_prediction import MACHINE

pytestmark = pytest.mark.timeout(120)
HERE = Worker(rank=0, size=1, spawn="inline", cpus=(), threads=1, sync=ALONE)
TWICE = Sampling(warmup=1, iterations=2)
SMALL = {"dsize": 16, "num_layers": 3, "batch_size": 2, "batches_per_step": 2}


def measure(*names: str, sampling: Sampling = TWICE, **axes) -> Record:
    axes = axes if names else SMALL | axes
    (case,) = cases(names or ("chain",), **{axis: [value] for axis, value in axes.items()})
    return run_case(HERE, case, sampling)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_schedule_of_the_chain(schedule, dtype):
    found = measure(schedule=schedule, dtype=dtype)
    assert found.status == "ok"
    metrics = {name: metric.value for name, metric in found.metrics.items()}
    assert len(found.values) == 2
    width = getattr(torch, dtype).itemsize
    flops, moved = 3 * 2 * 2 * 2 * 16**3, 3 * 16 * 16 * width
    assert (metrics["flops"], metrics["phases"]) == (flops, 3)
    assert metrics["items"] == pytest.approx(4 / metrics["time"])
    assert metrics["efficiency"] == pytest.approx(metrics["ideal"] / metrics["time"])
    assert metrics["error"] <= 1e-5
    streams = schedule not in HOLD_ALL
    assert ("bytes" in metrics) == streams
    profile = profile_of(found)
    assert profile is not None
    assert profile.ideal == pytest.approx(metrics["ideal"])
    if streams:
        assert (metrics["bytes"], metrics["flops_per_byte"]) == (moved, flops / moved)
        assert metrics["ideal"] >= max(metrics["load"], metrics["compute"])
        assert {event.kind for event in profile.events} >= {"load", "compute"}
        assert found.conditions["storage"] == "warm disk"
    else:
        assert metrics["ideal"] == pytest.approx(metrics["compute"])
        assert found.conditions["storage"] == "in memory"
    assert ("float32 computed" in str(found.conditions["arithmetic"])) == (width == 2)
    assert any("float32 computed" in note for note in found.notes) == (width == 2)


@pytest.mark.parametrize(
    ("store", "cold", "words"),
    [("host", False, "host memory"), ("disk", True, "cold disk"), ("mapped", False, "warm disk, mapped")],
)
def test_where_weights_come_from_is_said(store, cold, words):
    assert measure(store=store, cold=cold).conditions["storage"] == words


@pytest.mark.parametrize(
    ("schedule", "dtype"), [("phased", "float16"), pytest.param("sharded", "float32", marks=pytest.mark.slow)]
)
def test_devices_may_be_processes(schedule, dtype):
    found = measure(schedule=schedule, dtype=dtype, workers="processes")
    profile = profile_of(found)
    assert profile is not None
    assert profile.devices == [0, 1]
    assert found.metrics["error"].value <= 1e-5


def test_a_network_is_streamed_from_a_file_of_its_own(tmp_path):
    path = tmp_path / "weights.safetensors"
    write_weights(path, build("resnet18", seed=random.randrange(99)), dtype="bfloat16")
    found = measure("resnet18", weights=str(path), image_size=32, schedule="overlapped", budget="20MB")
    assert found.metrics["error"].value <= 1e-5
    assert 0 < found.metrics["working_memory"].value <= 20e6
    assert "bfloat16" in str(found.conditions["arithmetic"])
    assert found.metrics["weights"].value == pytest.approx(path.stat().st_size, rel=0.01)


@pytest.mark.parametrize("schedule", ["phased", "overlapped"])
def test_the_usual_budget_will_do_for_a_file_that_others_wrote(schedule, tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file(build("resnet18").state_dict(), path)  # its tensors begin anywhere in a page
    found = measure("resnet18", weights=str(path), image_size=32, schedule=schedule)
    assert found.metrics["error"].value <= 1e-5
    assert found.metrics["working_memory"].value < 0.6 * found.metrics["weights"].value


def test_the_usual_budget_leaves_most_weights_outside():
    found = measure("resnet18", image_size=32, schedule="overlapped")
    assert found.metrics["working_memory"].value < 0.5 * found.metrics["weights"].value
    assert found.metrics["bytes"].value > 0.5 * found.metrics["weights"].value


def test_a_budget_below_the_largest_layer_is_refused():
    with pytest.raises(TesseraError, match="does not fit the budget"):
        measure("resnet18", image_size=32, schedule="overlapped", budget="1MB")


def test_activations_beyond_their_limit_are_streamed_and_it_is_said():
    found = measure(activations="1KB", schedule="overlapped")
    assert found.metrics["error"].value <= 1e-5
    assert "activations beyond 1KB went through a scratch file" in found.notes
    assert not any("scratch" in note for note in measure().notes)


def test_a_missing_tensor_is_named(tmp_path):
    path = tmp_path / "weights.safetensors"
    write_weights(path, build("resnet34"))
    with pytest.raises(TesseraError, match="is not of this model"):
        measure("resnet50", weights=str(path), image_size=32)


def test_a_wrong_output_is_no_measurement(monkeypatch):
    plain = Workload.plain
    monkeypatch.setattr(
        Workload, "plain", lambda self: torch.nn.Sequential(plain(self), torch.nn.Hardtanh(-0.01, 0.01))
    )
    with pytest.raises(BenchmarkFailed, match="off by"):
        measure()


def test_nothing_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    measure()
    with pytest.raises(TesseraError):
        measure(num_layers=2, budget="1KB")
    assert list(tmp_path.iterdir()) == []
    (case,) = cases(**{axis: [value] for axis, value in SMALL.items()})
    with Workload.of(case).file():  # not even meanwhile: a process that is killed cleans nothing up
        assert list(tmp_path.iterdir()) == []


def test_the_chain_is_the_same_each_time_and_every_layer_another():
    (case,) = cases(**{axis: [value] for axis, value in SMALL.items()})
    one, other = (Workload.of(case).plain() for _ in range(2))
    values = list(one.parameters())
    assert all(torch.equal(a, b) for a, b in zip(values, other.parameters(), strict=True))
    assert not torch.equal(values[0], values[1])


def test_a_record_carries_the_prediction_of_a_calibrated_host():
    assert measure().predicted == {}
    save_host(MACHINE, host_fingerprint(environment()))
    warm, cold = measure(dtype="float32"), measure(dtype="float32", cold=True)
    moved = warm.metrics["bytes"].value
    assert warm.predicted["load"].value == pytest.approx(moved / 4e6)
    assert cold.predicted["load"].value == pytest.approx(moved / 1e6)
    assert warm.predicted["time"].value >= warm.predicted["load"].value
    assert "load" not in measure(schedule="resident", dtype="float32").predicted
