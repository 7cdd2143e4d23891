"""Files that are damaged or change, devices that die: a clear error, no hang, nothing left behind."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from tessera.errors import TesseraError
from tessera.phased import MatrixChain, PhasedModel, write_weights
from tessera.phased.store.lease import Lease
from tessera.phased.store.weights_file import WeightsFile

LAYERS, SIZE = 6, 64
STREAMING = ["sequential", "overlapped", "phased", "data-parallel"]


@pytest.fixture
def stored(tmp_path) -> Path:
    path = tmp_path / "weights.safetensors"
    write_weights(path, MatrixChain(SIZE, LAYERS), checksums=True)
    return path


def bare() -> MatrixChain:
    with torch.device("meta"):
        return MatrixChain(SIZE, LAYERS)


def open_on(path: Path, schedule: str, **options) -> PhasedModel:
    model = bare()
    budget = PhasedModel.least_budget(model, schedule=schedule)
    return PhasedModel(model, path=path, schedule=schedule, budget=budget, keep=False, threads=1, **options)


def lease_granted(path: Path) -> bool:
    file = WeightsFile(path)
    lease = Lease(file, file.fd)
    lease.close()
    file.close()
    return lease.held


def call_often(phased: PhasedModel, x: torch.Tensor, times: int = 3) -> None:
    """Once is not enough: phases that were loaded ahead of a fault may be used first."""
    for _ in range(times):
        phased(x)


@pytest.mark.parametrize("options", [{}, {"cold": True}, {"store": "mapped"}], ids=str)
@pytest.mark.parametrize("schedule", STREAMING)
@pytest.mark.timeout(60)
def test_a_file_that_changes_under_the_run(stored, schedule, options):
    x = torch.randn(2, SIZE, SIZE)
    with open_on(stored, schedule, **options) as phased:
        phased(x)
        time.sleep(0.02)  # the clock of a file system has ticks
        with open(stored, "r+b") as file:
            file.seek(-5, os.SEEK_END)
            file.write(b"\xff\xff")
        with pytest.raises(TesseraError, match="changed under the run"):
            call_often(phased, x)
        with pytest.raises(TesseraError, match="changed under the run"):
            phased(x)


@pytest.mark.parametrize("change", ["cut off", "replaced", "removed"])
def test_a_file_that_is_cut_off_replaced_or_removed(stored, change, tmp_path):
    x = torch.randn(2, SIZE, SIZE)
    with open_on(stored, "overlapped") as phased:
        phased(x)
        if change == "cut off":
            os.truncate(stored, stored.stat().st_size // 2)
        elif change == "replaced":
            write_weights(tmp_path / "new", MatrixChain(SIZE, LAYERS, seed=1), checksums=True)
            os.replace(tmp_path / "new", stored)
        else:
            stored.unlink()
        with pytest.raises(TesseraError, match="changed under the run"):
            call_often(phased, x)


@pytest.mark.parametrize("schedule", [*STREAMING, "resident"])
@pytest.mark.timeout(60)
def test_a_mapped_file_that_is_cut_off_is_an_error_and_not_the_end(stored, schedule):
    """Pages of a file that is cut off vanish, and the system ends who touches them: this test would not come back."""
    if not lease_granted(stored):
        pytest.skip("no leases on this file system")
    x = torch.randn(2, SIZE, SIZE)
    with open_on(stored, schedule, store="mapped") as phased:
        phased(x)
        other = subprocess.Popen(["sh", "-c", 'head -c 5000 /dev/zero > "$0"', str(stored)])
        with pytest.raises(TesseraError, match="changed under the run"):
            call_often(phased, x, 100_000)
        assert other.wait(10) == 0
        with pytest.raises(TesseraError, match="changed under the run"):
            phased(x)


@pytest.mark.parametrize("schedule", STREAMING)
@pytest.mark.timeout(60)
def test_a_flipped_bit_is_found_by_checksums(stored, schedule):
    data = bytearray(stored.read_bytes())
    data[-SIZE * SIZE * 2] ^= 1
    stored.write_bytes(data)
    x = torch.randn(2, SIZE, SIZE)
    with open_on(stored, schedule) as phased:
        phased(x)
    with (
        open_on(stored, schedule, checksums=True) as phased,
        pytest.raises(TesseraError, match=f"layers.{LAYERS - 1}.weight is damaged"),
    ):
        phased(x)


def test_a_file_on_a_full_disk_is_an_error_and_leaves_nothing():
    model = MatrixChain(SIZE, LAYERS)
    with pytest.raises(TesseraError, match="cannot write weights"):
        PhasedModel(model, directory="/proc")
    with pytest.raises(TesseraError, match="cannot write weights"):
        PhasedModel(model, path="/proc/nowhere")


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("store", ["disk", "host", "mapped"])
@pytest.mark.timeout(60)
def test_closing_leaves_no_thread_no_file_and_no_memory(store, tmp_path):
    for schedule in STREAMING:  # torch's own threads are started here
        use(schedule, store, tmp_path, fails=False)
    gc.collect()  # what earlier tests left to the collector is not ours
    before = set(threading.enumerate()), open_files(), shared_memory()
    for schedule in STREAMING:
        for fails in (False, True):
            use(schedule, store, tmp_path, fails=fails)
    gc.collect()  # errors hold on to the frames that they came through
    assert (set(threading.enumerate()), open_files(), shared_memory()) == before
    assert list(tmp_path.iterdir()) == []


def use(schedule: str, store: str, directory: Path, *, fails: bool) -> None:
    model = MatrixChain(SIZE, LAYERS)
    budget = PhasedModel.least_budget(model, schedule=schedule)
    place = None if store == "host" else directory
    with PhasedModel(model, schedule=schedule, budget=budget, store=store, directory=place, threads=1) as phased:
        x = torch.randn(2, SIZE, SIZE - fails)
        if fails:
            with pytest.raises(TesseraError):
                phased(x)
        else:
            phased(x)


def shared_memory() -> list[str]:
    """What lies in shared memory, but for that of MPI jobs, which other tests may run meanwhile."""
    return sorted(name for name in os.listdir("/dev/shm") if not name.startswith("sm_segment"))


@pytest.mark.timeout(60)
def test_a_model_that_nobody_closes_does_not_keep_the_interpreter(tmp_path):
    code = (
        "import torch\nfrom tessera.phased import MatrixChain, PhasedModel\n"
        "model = MatrixChain(16, 4)\n"
        "phased = PhasedModel(model, schedule='phased', budget=65536, keep=False)\n"
        "print(tuple(phased(torch.randn(2, 16, 16)).shape))"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=50, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(2, 16, 16)"
    assert done.stderr == ""
