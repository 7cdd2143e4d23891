"""Tests of the checks of a device: they pass on the device for tests, and each one fails on a planted mistake."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from tessera.device import DeviceMemory, checks, open_device
from tessera.device.accelerator import AcceleratorDevice
from tessera.device.checks import (
    check_asynchronous,
    check_clock,
    check_copies,
    check_device,
    check_memory,
    check_overlap,
    check_peers,
    check_results,
)
from tests.device.standin.build import find_missing, make_environment
from tests.device.standin.runner import on_standin
from tests.device.test_standin import MILLISECOND, configure

SLOW = {"operator_ns": 20 * MILLISECOND, "copy_bytes_per_second": 20_000_000}
CLOCK = "event times agree with the host's clock"
needs_standin = pytest.mark.skipif(bool(find_missing()), reason=find_missing() or "the device for tests is there")


def open_planted(kind):
    open_device("standin")
    return kind(torch.device("standin:0"))


@on_standin
def test_all_checks_pass():
    configure(**SLOW)
    device = open_device("standin:1")
    wrong = [check for check in check_device(device) if check.status != "pass"]
    assert wrong == [], wrong


def test_the_cpu_passes_the_checks_that_apply():
    statuses = {check.name: check.status for check in check_device(open_device("cpu"))}
    assert "fail" not in statuses.values(), statuses
    assert statuses[CLOCK] == statuses["results equal the CPU's"] == "pass"


@on_standin
def test_events_with_a_wrong_rate_fail():
    configure(**SLOW, event_rate_percent=150)
    assert check_clock(open_device("standin"))[0] == "fail"


@on_standin
def test_marks_on_another_stream_than_the_work_fail():
    class WrongStream(AcceleratorDevice):
        def mark_time(self, stream=None):
            self.side = getattr(self, "side", None) or self.make_stream()
            return super().mark_time(self.side)

    configure(**SLOW)
    assert check_clock(open_planted(WrongStream))[0] == "fail"


@on_standin
def test_a_device_without_synchronisation_fails():
    class Unsynchronised(AcceleratorDevice):
        def synchronize(self):
            return None

        def compute_seconds(self, start, end):
            end.synchronize()
            return super().compute_seconds(start, end)

    configure(**SLOW)
    checks.SIZES = (256,)  # the search for a size that takes long enough does not synchronise either
    device = open_planted(Unsynchronised)
    assert check_asynchronous(device)[0] == "fail"
    assert check_clock(device)[0] == "fail"


@on_standin
def test_calls_that_block_fail():
    configure(**SLOW, launch_ns=20 * MILLISECOND)
    assert check_asynchronous(open_device("standin"))[0] == "fail"


@on_standin
def test_wrong_results_fail():
    configure(wrong_results=1)
    status, reason = check_results(open_device("standin"))
    assert status == "fail"
    assert "in float32: relative error" in reason


@pytest.mark.parametrize("missing", ["wait_for", "delay_stream"])
@on_standin
def test_copies_that_are_not_waited_for_fail(missing):
    configure(copy_bytes_per_second=1_000_000)
    planted = type("Planted", (AcceleratorDevice,), {missing: lambda self, *args: None})
    assert check_copies(open_planted(planted))[0] == "fail"
    assert check_copies(open_device("standin"))[0] == "pass"


@on_standin
def test_copies_that_do_not_overlap_fail():
    configure(**SLOW, serial_copies=1)
    assert check_overlap(open_device("standin"))[0] == "fail"


@pytest.mark.parametrize("field", ["current", "peak"])
@on_standin
def test_memory_figures_that_do_not_add_up_fail(field):
    class Misreporting(AcceleratorDevice):
        def read_memory(self):
            seen = super().read_memory()
            half = {name: getattr(seen, name) // (2 if name == field else 1) for name in ("current", "peak")}
            return DeviceMemory(**half)

    assert check_memory(open_planted(Misreporting))[0] == "fail"


@on_standin
def test_an_error_of_the_device_is_a_failed_check():
    device = open_device("standin")
    configure(lost_device=0)
    results = list(check_device(device))
    assert {check.status for check in results} == {"fail"}
    assert all("device lost" in check.reason for check in results)


@on_standin
def test_peers():
    assert check_peers(open_device("standin:1")) == ("pass", "1 MiB to standin:0 and back")


def run_doctor(*words, **settings):
    command = [sys.executable, "-m", "tessera", "doctor", *words]
    return subprocess.run(command, env=make_environment(**settings), capture_output=True, text=True, timeout=110)


@needs_standin
def test_the_command_prints_json():
    done = run_doctor("--device", "standin:1", "--json", **SLOW)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["passed"]
    assert report["device"]["model"] == "Stand-in device for tests"
    assert report["driver"] == {"mhz": 1000.0, "temperature": 40.0, "throttled": None, "joules": None}


@needs_standin
def test_the_exit_code_is_1_if_a_check_fails():
    done = run_doctor("--device", "standin:1", **SLOW, event_rate_percent=150)
    assert done.returncode == 1, done.stdout
    assert any(CLOCK in line and "fail" in line for line in done.stdout.splitlines())


@pytest.mark.skipif(torch.accelerator.is_available(), reason="this machine has an accelerator")
def test_a_missing_device_is_one_line():
    command = [sys.executable, "-m", "tessera", "doctor", "--device", "cuda"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert done.returncode == 2
    assert done.stderr.startswith("tessera: no such device: got 'cuda:0'; allowed: cpu; torch ")
    assert done.stderr.count("\n") == 1
