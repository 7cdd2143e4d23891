"""Tests of damaged and changing files and of killed devices: a clear error, no hang, no leaked resources."""

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
from tessera.phased.store.lease import FileLease
from tessera.phased.store.weights_file import WeightsFile

LAYERS, SIZE = 6, 64
STREAMING = ["sequential", "overlapped", "phased", "data-parallel"]


@pytest.fixture
def weights_path(tmp_path) -> Path:
    path = tmp_path / "weights.safetensors"
    write_weights(path, MatrixChain(SIZE, LAYERS), checksums=True)
    return path


def build_skeleton() -> MatrixChain:
    with torch.device("meta"):
        return MatrixChain(SIZE, LAYERS)


def open_from(path: Path, schedule: str, **options) -> PhasedModel:
    model = build_skeleton()
    budget = PhasedModel.compute_min_budget(model, schedule=schedule)
    return PhasedModel(model, path=path, schedule=schedule, budget=budget, keep=False, threads=1, **options)


def is_lease_granted(path: Path) -> bool:
    file = WeightsFile(path)
    lease = FileLease(file, file.fd)
    lease.close()
    file.close()
    return lease.held


def call_often(phased: PhasedModel, x: torch.Tensor, times: int = 3) -> None:
    """Call a model several times, because phases that were loaded before the fault may be used first."""
    for _ in range(times):
        phased(x)


@pytest.mark.parametrize("options", [{}, {"cold": True}, {"store": "mapped"}], ids=str)
@pytest.mark.parametrize("schedule", STREAMING)
@pytest.mark.timeout(60)
def test_a_file_that_changes_during_the_run_is_an_error(weights_path, schedule, options):
    x = torch.randn(2, SIZE, SIZE)
    with open_from(weights_path, schedule, **options) as phased:
        phased(x)
        time.sleep(0.02)  # file systems have coarse time stamps
        with open(weights_path, "r+b") as file:
            file.seek(-5, os.SEEK_END)
            file.write(b"\xff\xff")
        with pytest.raises(TesseraError, match="changed while it was in use"):
            call_often(phased, x)
        with pytest.raises(TesseraError, match="changed while it was in use"):
            phased(x)


@pytest.mark.parametrize("change", ["truncated", "replaced", "removed"])
def test_a_file_that_is_truncated_replaced_or_removed_is_an_error(weights_path, change, tmp_path):
    x = torch.randn(2, SIZE, SIZE)
    with open_from(weights_path, "overlapped") as phased:
        phased(x)
        if change == "truncated":
            os.truncate(weights_path, weights_path.stat().st_size // 2)
        elif change == "replaced":
            write_weights(tmp_path / "new", MatrixChain(SIZE, LAYERS, seed=1), checksums=True)
            os.replace(tmp_path / "new", weights_path)
        else:
            weights_path.unlink()
        with pytest.raises(TesseraError, match="changed while it was in use"):
            call_often(phased, x)


@pytest.mark.parametrize("schedule", [*STREAMING, "resident"])
@pytest.mark.timeout(60)
def test_truncation_of_a_mapped_file_is_an_error_and_not_a_crash(weights_path, schedule):
    """Without a lease, the process would receive SIGBUS and this test would not return."""
    if not is_lease_granted(weights_path):
        pytest.skip("no leases on this file system")
    x = torch.randn(2, SIZE, SIZE)
    with open_from(weights_path, schedule, store="mapped") as phased:
        phased(x)
        program = subprocess.Popen(["sh", "-c", 'head -c 5000 /dev/zero > "$0"', str(weights_path)])
        with pytest.raises(TesseraError, match="changed while it was in use"):
            call_often(phased, x, 100_000)
        assert program.wait(10) == 0
        with pytest.raises(TesseraError, match="changed while it was in use"):
            phased(x)


@pytest.mark.parametrize("schedule", STREAMING)
@pytest.mark.timeout(60)
def test_a_flipped_bit_is_detected_by_checksums(weights_path, schedule):
    data = bytearray(weights_path.read_bytes())
    data[-SIZE * SIZE * 2] ^= 1
    weights_path.write_bytes(data)
    x = torch.randn(2, SIZE, SIZE)
    with open_from(weights_path, schedule) as phased:
        phased(x)
    with (
        open_from(weights_path, schedule, checksums=True) as phased,
        pytest.raises(TesseraError, match=f"layers.{LAYERS - 1}.weight has a wrong checksum"),
    ):
        phased(x)


def test_a_file_on_a_full_disk_is_an_error_and_leaves_nothing():
    model = MatrixChain(SIZE, LAYERS)
    with pytest.raises(TesseraError, match="cannot write weights"):
        PhasedModel(model, directory="/proc")
    with pytest.raises(TesseraError, match="cannot write weights"):
        PhasedModel(model, path="/proc/nowhere")


def count_open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("store", ["disk", "host", "mapped"])
@pytest.mark.timeout(60)
def test_closing_leaves_no_thread_no_file_and_no_memory(store, tmp_path):
    for schedule in STREAMING:  # warm-up, which starts torch's own threads
        run_model(schedule, store, tmp_path, fails=False)
    gc.collect()  # collect garbage of earlier tests
    before = set(threading.enumerate()), count_open_files(), list_shared_memory()
    for schedule in STREAMING:
        for fails in (False, True):
            run_model(schedule, store, tmp_path, fails=fails)
    gc.collect()  # errors keep references to frames, and so to models
    assert (set(threading.enumerate()), count_open_files(), list_shared_memory()) == before
    assert list(tmp_path.iterdir()) == []


def run_model(schedule: str, store: str, directory: Path, *, fails: bool) -> None:
    model = MatrixChain(SIZE, LAYERS)
    budget = PhasedModel.compute_min_budget(model, schedule=schedule)
    place = None if store == "host" else directory
    with PhasedModel(model, schedule=schedule, budget=budget, store=store, directory=place, threads=1) as phased:
        x = torch.randn(2, SIZE, SIZE - fails)
        if fails:
            with pytest.raises(RuntimeError, match="cannot be multiplied"):
                phased(x)
        else:
            phased(x)


def list_shared_memory() -> list[str]:
    """List shared memory segments, except segments of MPI jobs, which other tests may run concurrently."""
    return sorted(name for name in os.listdir("/dev/shm") if not name.startswith("sm_segment"))


@pytest.mark.timeout(60)
def test_an_unclosed_model_does_not_block_the_exit_of_the_interpreter(tmp_path):
    code = (
        "import torch\nfrom tessera.phased import MatrixChain, PhasedModel\n"
        "model = MatrixChain(16, 4)\n"
        "phased = PhasedModel(model, schedule='phased', budget=65536, keep=False)\n"
        "print(tuple(phased(torch.randn(2, 16, 16)).shape))"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=50, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(2, 16, 16)"
    assert done.stderr == ""
