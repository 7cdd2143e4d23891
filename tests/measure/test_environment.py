"""What is recorded of the machine, and which records may be compared."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tessera.errors import TesseraError
from tessera.measure.allocator import ALLOCATORS, allocator_env
from tessera.measure.environment import environment, fingerprint, host_fingerprint
from tessera.measure.noise import Noise, advice, measure_noise


def in_a_process(code: str, **env: str) -> str:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
    return subprocess.run(
        [sys.executable, "-c", code], env=kept | env, capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()


def test_the_environment_is_plain_json_and_names_what_matters():
    seen = environment()
    assert json.loads(json.dumps(seen)) == seen
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
        assert seen[name], name
    assert seen["libraries"]["torch"].startswith("2.13")


def test_library_versions_may_differ_and_machines_may_not():
    seen = environment()
    assert fingerprint(seen | {"libraries": {"torch": "9"}, "python": "4"}) == seen["fingerprint"]
    for name in ("cpu", "cores", "allocator", "threads", "pinned_to"):
        assert fingerprint(seen | {name: "other"}) != seen["fingerprint"], name
    assert host_fingerprint(seen | {"threads": 64}) == host_fingerprint(seen)
    assert host_fingerprint(seen | {"cpu": "other"}) != host_fingerprint(seen)


@pytest.mark.parametrize("name", list(ALLOCATORS))
def test_a_process_knows_the_allocator_setting_it_was_started_with(name):
    code = "from tessera.measure.allocator import current_allocator as c; print(c())"
    assert in_a_process(code, **allocator_env(name)) == name
    assert in_a_process(code, MALLOC_TOP_PAD_="1") == "custom"


def test_the_steady_allocator_stops_page_fault_storms():
    code = (
        "import torch; torch.set_num_threads(1)\n"
        "from tessera.measure.sampler import sample; from tessera.measure.samples import Sampling\n"
        "x = torch.randn(4096, 4096)\n"
        "print(sample(lambda: torch.relu(x + x) * 2, Sampling(warmup=3, iterations=3)).faults_per_call)"
    )
    # now and then the heap still grows during one of the three calls
    assert any(float(in_a_process(code, **allocator_env("steady"))) < 100 for _ in range(3))
    assert float(in_a_process(code)) > 500


def test_an_unknown_allocator_is_refused():
    with pytest.raises(TesseraError, match="allowed: steady, system"):
        allocator_env("jemalloc")


def test_noise_is_measured_on_real_work():
    noise = measure_noise(0.2)
    assert noise.pieces > 10
    assert 0 < noise.median < 0.1
    assert noise.spread >= 0


QUIET = Noise(
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


def test_advice_names_each_trouble_and_keeps_silent_otherwise():
    from dataclasses import replace

    seen = {"governor": "performance", "threads": 1, "pinned_to": 2}
    assert advice(QUIET, seen) == []
    for change, word in [
        ({"load": 3.0}, "load"),
        ({"steal": 0.2}, "hypervisor"),
        ({"hidden": 0.3}, "off its core"),
        ({"spread": 0.2}, "spread"),
        ({"drift": -0.1}, "drifted"),
        ({"tail": 2.0}, "one repetition in a hundred"),
    ]:
        (line,) = advice(replace(QUIET, **change), seen)
        assert word in line
    assert "governor" in advice(QUIET, seen | {"governor": "powersave"})[0]
    assert "threads" in advice(QUIET, seen | {"threads": 8})[0]
