"""Tests that records of different devices are never compared silently: compare, history, report and ab."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from tessera.ab.bench import check_same_device
from tessera.ab.worker import describe_interpreter
from tessera.errors import Refused
from tessera.measure.environment import describe_environment
from tessera.measure.samples import Samples
from tessera.operators.cases import cases
from tessera.results.compare import compare
from tessera.results.history import build_history
from tessera.results.metrics import make_metrics
from tessera.results.observation import read_metric
from tessera.results.record import Record
from tessera.results.store import Store
from tessera.suites.features import get_feature
from tests.device.standin.build import make_environment
from tests.device.standin.runner import on_standin
from tests.device.test_checks import needs_standin
from tests.device.test_operators import ALONE, read_records
from tests.device.test_standin import MILLISECOND


def make_record(model: str, value: float) -> Record:
    """Return a record of one case on a device model; empty for the CPU, under the same case."""
    (case,) = cases(["add"], size=["small"], passes=["forward"], device=["cuda"])
    samples = Samples(values=tuple(value + n * 1e-9 for n in range(20)))
    environment = describe_environment(device=f"cuda:0 {model}" if model else "")
    return Record(case=case, launches=(samples,) * 3, metrics=make_metrics({"time": value}), environment=environment)


def test_compare_excludes_other_devices_and_names_them():
    assert len(compare([make_record("A", 1.0)], [make_record("A", 2.0)]).cases) == 1
    for model, shown in (("B", "cuda:0 B"), ("", "cpu")):
        other = compare([make_record("A", 1.0)], [make_record(model, 2.0)])
        assert not other.cases
        (excluded,) = other.excluded
        assert (excluded.kind, excluded.reason) == (
            "device",
            f"measured on another device: cuda:0 A in A, {shown} in B",
        )


def test_history_excludes_other_devices_and_says_so(tmp_path):
    models = ["A", "B", "", "B"]
    readings = [
        read_metric(make_record(model, 1.0 + number), "time", run=f"r{number}", started=f"2026-01-0{number + 1}")
        for number, model in enumerate(models)
    ]
    history = build_history(readings, "time")
    assert [point.run for point in history.series[0].points] == ["r1", "r3"]
    assert [(record.run, record.why) for record in history.excluded] == [("r0", "device"), ("r2", "device")]


def test_the_commands_name_the_devices(tmp_path):
    path = tmp_path / "store.db"
    with Store(path) as store:
        for number, model in enumerate("ABA"):
            run = store.start_run(f"run{number}", command="", suite="ops")
            store.add(run, replace(make_record(model, 1.0 + number), started="2026-01-01T00:00:00+00:00"))
            store.finish_run(run)

    def run_tessera(*words):
        command = [sys.executable, "-m", "tessera", *words, "--store", str(path)]
        return subprocess.run(command, capture_output=True, text=True, timeout=110)

    compared = run_tessera("compare", "run0", "run1")
    assert compared.returncode == 3, compared.stdout
    assert "1 on another device" in compared.stdout + compared.stderr
    listed = run_tessera("compare", "run0", "run1", "--all")
    assert "cuda:0 A in A, cuda:0 B in B" in " ".join(listed.stdout.replace("│", " ").split())
    assert run_tessera("compare", "run0", "run2").returncode == 1
    history = run_tessera("history", "add")
    assert "1 on another device than the newest" in history.stdout, history.stdout + history.stderr
    page = tmp_path / "page.html"
    assert run_tessera("report", "run0", "run1", "-o", str(page)).returncode == 0
    text = page.read_text()
    assert "cuda:0 A" in text
    assert "cuda:0 B" in text
    assert "another device" in text


def test_ab_refuses_sides_on_different_devices():
    environments = [describe_environment(device=device) for device in ("cuda:0 A", "cuda:0 B", "")]
    check_same_device(environments[0], environments[0])
    with pytest.raises(Refused, match="different devices: got 'cuda:0 A in A, cuda:0 B in B'"):
        check_same_device(environments[0], environments[1])
    with pytest.raises(Refused, match="'cuda:0 A in A, cpu in B'"):
        check_same_device(environments[0], environments[2])


@on_standin
def test_the_environment_of_a_side_names_its_device():
    import tessera_standin

    (case,) = cases(["add"], size=["small"], passes=["forward"], device=["standin:1"])
    environment = describe_interpreter(ALONE, get_feature("ops").device, (case,))
    assert environment["device"] == "standin:1 Stand-in device for tests"
    assert not tessera_standin.is_initialised()  # launches are forked from this process
    assert "device" not in describe_interpreter(ALONE, get_feature("ops").device, (case.without("device"),))


@pytest.mark.slow
@pytest.mark.timeout(310)
@needs_standin
def test_ab_measures_on_a_device_and_records_it(tmp_path):
    words = ("ab", "add", "--size", "small", "--quick", "--budget", "0.1s", "--device", "standin:1", "--json")
    command = [sys.executable, "-m", "tessera", *words, "--store", str(tmp_path / "store.db")]
    environment = make_environment(operator_ns=2 * MILLISECOND)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 1), done.stderr  # a busy machine may find a change
    (record,) = read_records(done.stdout)
    assert record["case"]["params"]["device"] == "standin:1"
    assert record["environment"]["device"] == "standin:1 Stand-in device for tests"
    assert min(record["metrics"][name]["value"] for name in ("time_a", "time_b")) > 2e-3  # the device was waited for
