"""Tests of the recorded environment of a machine, and of the comparability of environments."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tessera.errors import TesseraError
from tessera.measure.allocator import ALLOCATORS, get_allocator_env
from tessera.measure.environment import compute_fingerprint, compute_host_fingerprint, describe_environment
from tessera.measure.noise import NoiseReport, list_noise_advice, measure_noise


def run_python(code: str, **env: str) -> str:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
    return subprocess.run(
        [sys.executable, "-c", code], env=kept | env, capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()


def test_the_environment_is_plain_json_with_the_important_fields():
    environment = describe_environment()
    assert json.loads(json.dumps(environment)) == environment
    for name in (
        "cpu",
        "cores",
        "memory_gb",
        "system",
        "python",
        "allocator",
        "threads",
        "fingerprint",
        "kind",
    ):
        assert environment[name], name
    assert environment["libraries"]["torch"].startswith("2.13")


def test_library_versions_may_differ_and_machines_may_not():
    environment = describe_environment()
    assert compute_fingerprint(environment | {"libraries": {"torch": "9"}, "python": "4"}) == environment["fingerprint"]
    for name in ("cpu", "cores", "allocator", "threads", "pinned_to"):
        assert compute_fingerprint(environment | {name: "other"}) != environment["fingerprint"], name
    assert compute_host_fingerprint(environment | {"threads": 64}) == compute_host_fingerprint(environment)
    assert compute_host_fingerprint(environment | {"cpu": "other"}) != compute_host_fingerprint(environment)


@pytest.mark.parametrize("name", list(ALLOCATORS))
def test_a_process_knows_the_allocator_setting_it_was_started_with(name):
    code = "from tessera.measure.allocator import detect_allocator as c; print(c())"
    assert run_python(code, **get_allocator_env(name)) == name
    assert run_python(code, MALLOC_TOP_PAD_="1") == "custom"


def test_the_steady_allocator_stops_page_fault_storms():
    code = (
        "import torch; torch.set_num_threads(1)\n"
        "from tessera.measure.sampler import sample; from tessera.measure.samples import Sampling\n"
        "x = torch.randn(4096, 4096)\n"
        "print(sample(lambda: torch.relu(x + x) * 2, Sampling(warmup=3, iterations=3)).faults_per_call)"
    )
    # occasionally the heap still grows during one of the three calls
    assert any(float(run_python(code, **get_allocator_env("steady"))) < 100 for _ in range(3))
    assert float(run_python(code)) > 500


def test_an_unknown_allocator_is_refused():
    with pytest.raises(TesseraError, match="allowed: steady, system"):
        get_allocator_env("jemalloc")


def test_noise_is_measured_on_real_work():
    noise = measure_noise(0.2)
    assert noise.pieces > 10
    assert 0 < noise.median < 0.1
    assert noise.spread >= 0


QUIET = NoiseReport(
    seconds=1,
    pieces=1000,
    median=1e-4,
    spread=0.01,
    tail=0.1,
    drift=0.0,
    hidden=0.0,
    switches_per_s=0,
    steal=0.0,
    load=0.1,
)


def test_advice_names_each_problem_and_is_empty_without_problems():
    from dataclasses import replace

    environment = {"governor": "performance", "threads": 1, "pinned_to": 2}
    assert list_noise_advice(QUIET, environment) == []
    for change, word in [
        ({"load": 3.0}, "load"),
        ({"steal": 0.2}, "hypervisor"),
        ({"hidden": 0.3}, "did not run"),
        ({"spread": 0.2}, "interquartile range"),
        ({"drift": -0.1}, "drifted"),
        ({"tail": 2.0}, "one repetition in a hundred"),
    ]:
        (line,) = list_noise_advice(replace(QUIET, **change), environment)
        assert word in line
    assert "governor" in list_noise_advice(QUIET, environment | {"governor": "powersave"})[0]
    assert "threads" in list_noise_advice(QUIET, environment | {"threads": 8})[0]
