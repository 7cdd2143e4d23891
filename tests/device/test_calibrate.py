"""Tests of the calibration of a device and of the roofline of operators on it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from tessera.device import calibrate, open_device
from tessera.device.calibrate import calibrate_device, measure_launch, measure_products, time_on_device
from tessera.machine.catalogue import load_host, save_host
from tessera.measure.environment import compute_host_fingerprint, describe_environment
from tests.device.standin.build import make_environment
from tests.device.standin.runner import on_standin
from tests.device.test_checks import needs_standin
from tests.device.test_operators import run_operator
from tests.device.test_standin import MILLISECOND, configure


@on_standin
def test_rates_are_work_over_the_set_duration():
    configure(operator_ns=100 * MILLISECOND, launch_ns=20 * MILLISECOND, copy_bytes_per_second=4_000_000)
    calibrate.MATRIX_SIZES, calibrate.ARRAY_BYTES, calibrate.LAUNCHES = (64,), 1 << 19, 5
    calibrate.GEMM_DTYPES = ("float32", "bfloat16", "int8")
    machine = calibrate_device(open_device("standin:1"), effort=0)
    assert machine.name == "standin:1"
    for dtype in ("float32", "bfloat16", "int8"):
        assert machine.get_rate(dtype, workers=2) == pytest.approx(2 * 64**3 / 0.1, rel=0.05)  # one device, one worker
    assert machine.get_bandwidth("global") == pytest.approx(3 * (1 << 19) / 0.1, rel=0.05)
    assert machine.get_bandwidth("copy") == pytest.approx((1 << 19) / 0.1, rel=0.05)
    assert machine.get_bandwidth("host") == pytest.approx(4_000_000, rel=0.05)
    assert 0.02 <= machine.get_overhead("launch") < 0.08
    assert machine.global_memory == 1 << 30
    assert all(machine.get_source(figure) for figure in machine.list_figures())


@on_standin
def test_the_largest_matrix_that_is_quick_and_fits_is_used():
    configure(memory_bytes=4 << 20)
    device = open_device("standin")
    best, size = measure_products(device, "float32", 1 << 40, 0)  # the memory is full before the limit is reached
    assert size == 512
    assert best.rate > 0
    configure(memory_bytes=1 << 30, operator_ns=200 * MILLISECOND)
    assert measure_products(device, "float32", 1 << 30, 0)[1] == 256


@on_standin
def test_a_dtype_that_the_device_lacks_has_no_rate():
    configure(lacks_float64=1)
    assert measure_products(open_device("standin"), "float64", 1 << 30, 0) is None


@on_standin
def test_times_without_marks_would_be_wrong():
    """The mistake: the host's clock around a call that returns early, as the rates of the host are measured."""
    from tessera.machine.probes import time_call

    device = open_device("standin")
    numbers = torch.ones(8, device="standin")
    device.synchronize()
    configure(operator_ns=100 * MILLISECOND)
    assert time_on_device(device, lambda: numbers.add_(1)) == pytest.approx(0.1, rel=0.03)
    assert time_call(lambda: numbers.add_(1)) < 0.05


@on_standin
def test_a_lost_device_is_not_calibrated():
    device = open_device("standin")
    configure(lost_device=0)
    with pytest.raises(torch.AcceleratorError, match="device lost"):
        calibrate_device(device)


@on_standin
def test_operators_are_compared_with_the_roofline_of_their_device(tmp_path):
    monkeypatch_home(tmp_path)
    configure(operator_ns=50 * MILLISECOND)
    assert "roofline" not in run_operator("matmul").metrics  # not calibrated; the host's rates are never used
    device = open_device("standin:0")
    calibrate.MATRIX_SIZES, calibrate.ARRAY_BYTES, calibrate.LAUNCHES = (64,), 1 << 19, 2
    machine = calibrate_device(device, effort=0)
    save_host(machine, compute_host_fingerprint(describe_environment(device=device.describe().label)))
    record = run_operator("matmul")
    flops = record.metrics["gflops"].value * 1e9 * record.metrics["time"].value
    moved = record.metrics["bandwidth"].value * 1e9 * record.metrics["time"].value
    expected = max(flops / machine.get_rate("float32"), moved / machine.get_bandwidth("global"))
    assert record.predicted["time"].value == pytest.approx(expected, rel=1e-6)
    assert record.metrics["roofline"].value == pytest.approx(expected / record.metrics["time"].value, rel=1e-6)
    assert "roofline" not in run_operator("matmul", device="standin:1").metrics
    assert load_host(compute_host_fingerprint(describe_environment())) is None


def monkeypatch_home(folder):
    """Store calibrations in a folder. The process of a test on the device for tests ends with the test."""
    import os

    os.environ["TESSERA_HOME"] = str(folder)


@on_standin
def test_the_launch_overhead_is_the_time_of_the_host():
    device = open_device("standin")
    calibrate.LAUNCHES = 5
    configure(launch_ns=50 * MILLISECOND, operator_ns=10 * MILLISECOND)
    assert 0.05 <= measure_launch(device) < 0.08


def run_doctor(tmp_path, *words, **settings):
    environment = {**make_environment(**settings), "TESSERA_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "tessera", "doctor", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110)


@needs_standin
def test_the_command_stores_the_rates(tmp_path):
    done = run_doctor(
        tmp_path, "--calibrate", "--quick", "--force", "--device", "standin:1", "--json", memory_bytes=8 << 20
    )
    assert done.returncode == 0, done.stderr
    machine = json.loads(done.stdout)
    assert machine["name"] == "standin:1"
    assert {"float32", "float64", "bfloat16"} <= set(machine["flops"])
    assert {"global", "copy", "host"} == set(machine["links"])
    assert len(list((tmp_path / "hosts").iterdir())) == 1


@pytest.mark.parametrize(
    "words", [("--self-test", "--device", "cpu"), ("--calibrate", "--device", "cuda", "--directory", ".")]
)
def test_options_that_do_not_belong_together_are_errors(tmp_path, words):
    command = [sys.executable, "-m", "tessera", "doctor", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1, done.stderr
