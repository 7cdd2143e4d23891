"""Tests of the readings of a driver: each source, missing sources, and the conditions of records."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tessera.device import driver, open_device
from tessera.device.driver import DeviceDriver, DriverReading, HwmonSource, NvmlSource
from tests.device.standin.runner import on_standin
from tests.device.test_operators import run_operator

NVML_SOURCE = Path(__file__).parent / "standin" / "nvml.c"
UUID = "GPU-11111111-2222-3333-4444-555555555555"


def read_nvml(folder: Path, uuid: str, *flags: str) -> str:
    """Build the stand-in of NVML and return what two readings of a device print."""
    compiler = shutil.which(os.environ.get("CC", "gcc"))
    if compiler is None:
        pytest.skip("requires a C compiler")
    library = folder / driver.NVML_LIBRARY
    subprocess.run([compiler, "-shared", "-fPIC", *flags, str(NVML_SOURCE), "-o", str(library)], check=True)
    program = f"from tessera.device.driver import NvmlSource; source = NvmlSource.open({uuid!r})\n"
    program += "print(source if source is None else [dict(source.read()) for _ in range(2)])"
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_nvml_reports_clock_temperature_throttling_and_energy(tmp_path):
    first = {"mhz": 1410, "temperature": 67, "throttled": ("power cap", "temperature (hardware)"), "joules": 3.5}
    assert read_nvml(tmp_path, UUID) == str([first, {**first, "joules": 6.0}])


def test_an_older_nvml_has_no_energy_and_another_name_for_throttling(tmp_path):
    values = {"mhz": 1410, "temperature": 67, "throttled": ("power cap", "temperature (hardware)")}
    assert read_nvml(tmp_path, UUID, "-DOLD_DRIVER") == str([values, values])


def test_a_device_that_nvml_does_not_know_has_no_readings(tmp_path):
    assert read_nvml(tmp_path, "GPU-0") == "None"


def test_without_nvml_there_is_no_source(monkeypatch):
    monkeypatch.setattr(driver, "NVML_LIBRARY", "libno-such-library.so.1")
    assert NvmlSource.open(UUID) is None


def test_hwmon_files_of_the_kernel_are_read(tmp_path):
    folder = tmp_path / "0000:03:00.0" / "hwmon" / "hwmon4"
    folder.mkdir(parents=True)
    (folder / "temp1_input").write_text("54000\n")
    (folder / "energy1_input").write_text("2500000\n")
    (folder / "freq1_input").write_text("not a number\n")
    source = HwmonSource.open("0000:03:00.0", tmp_path)
    assert source is not None
    assert source.read() == {"temperature": 54.0, "joules": 2.5}
    assert HwmonSource.open("0000:04:00.0", tmp_path) is None


def test_the_first_source_of_a_value_counts():
    class Source:
        def __init__(self, **values):
            self.values = values

        def read(self):
            return self.values

    reading = DeviceDriver((Source(mhz=1.0, throttled=()), Source(mhz=2.0, temperature=3.0))).read()
    assert reading == DriverReading(mhz=1.0, temperature=3.0, throttled=())
    assert reading.to_conditions() == {"device_mhz": 1.0, "device_temperature": 3.0, "device_throttled": ""}


def test_the_cpu_has_no_readings():
    assert open_device("cpu").read_driver() == DriverReading()


@on_standin
def test_readings_are_conditions_of_a_record():
    assert open_device("standin").read_driver() == DriverReading(mhz=1000.0, temperature=40.0)
    record = run_operator("add")
    assert record.conditions == {"device_mhz": 1000.0, "device_temperature": 40.0}


@pytest.mark.parametrize("throttled", [("power cap",), ()])
@on_standin
def test_throttling_is_a_note_of_a_record(throttled):
    from tessera.device.accelerator import AcceleratorDevice

    AcceleratorDevice.read_driver = lambda self: DriverReading(throttled=throttled)
    record = run_operator("add")
    assert any("throttled: power cap" in note for note in record.notes) == bool(throttled)


@on_standin
def test_a_driver_without_functions_gives_nothing():
    module = torch.get_device_module("standin")
    del module.clock_rate
    module.temperature = lambda device: 1 / 0
    assert open_device("standin").read_driver() == DriverReading()
