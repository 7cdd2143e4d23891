"""Tests of the calibration of this machine, with short measurements."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tessera.errors import TesseraError
from tessera.machine import Machine, load_host, save_host
from tessera.machine.calibrate import calibrate_host, choose_thread_counts, find_disturbances, interpolate_over_threads
from tessera.machine.probes import READ_BLOCK_BYTES, measure_best_rate, measure_gemm_rate, measure_storage_rates


def test_calibration_measures_all_rates_of_this_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    threads = torch.get_num_threads()
    transfers = [{"bytes": 1e3 * n, "seconds": 1e-6 + n * 1e-7} for n in range(1, 5)]
    host = calibrate_host(tmp_path, lines.append, transfers, storage_bytes=64 << 20, effort=0.01)
    assert host.name == "host"
    assert host.workers.size == len(os.sched_getaffinity(0))
    assert {"float32", "float64"} <= set(host.flops)
    assert {"global", "copy", "streaming", "streaming_warm", "link"} == set(host.links)
    assert host.get_link("link").latency == pytest.approx(1e-6)
    for figure in host.list_figures():
        assert host.get_source(figure), figure
        if figure.startswith("flops"):
            assert all(0 <= s < 1 for s in host.spread[figure])
    # Limits that any current computer meets; they detect a wrong unit prefix.
    assert 1e8 < host.get_rate("float32") < 1e13
    assert 1e8 < host.get_bandwidth("global") < 1e12
    assert 1e6 < host.get_bandwidth("streaming") < 1e12
    assert torch.get_num_threads() == threads
    assert list(tmp_path.iterdir()) == []
    assert any("float32" in line for line in lines)
    assert any("without the page cache" in line for line in lines)

    monkeypatch.setenv("TESSERA_HOME", str(tmp_path))
    save_host(host, "here")
    assert load_host("here") == host


def test_calibration_without_transfers_has_no_link(tmp_path: Path) -> None:
    host = calibrate_host(tmp_path, storage_bytes=READ_BLOCK_BYTES, effort=0.0)
    assert "link" not in host.links
    assert isinstance(host, Machine)


def test_a_slow_dtype_gets_a_small_matrix() -> None:
    measurement = measure_gemm_rate("float32", 1, budget=0.01)
    assert measurement is not None
    best, size = measurement
    assert 2 * size**3 / best.rate < 1.0
    assert measure_gemm_rate("int64", 1, budget=0.01) is not None  # slow in torch
    assert measure_gemm_rate("bool", 1, budget=0.01) is None  # torch cannot multiply matrices of bool


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TesseraError, match="cannot measure storage"):
        measure_storage_rates(tmp_path / "absent", size=READ_BLOCK_BYTES, budget=0.01)


def test_a_full_disk_is_a_one_line_error(tmp_path: Path) -> None:
    start = time.perf_counter()
    with pytest.raises(TesseraError, match=r"not enough space for a temporary file.*choose another directory"):
        measure_storage_rates(tmp_path, size=1 << 52, budget=0.01)
    assert time.perf_counter() - start < 5
    assert list(tmp_path.iterdir()) == []


def test_method_names_a_file_system_without_direct_reads() -> None:
    shm = Path("/dev/shm")
    if not os.access(shm, os.W_OK):
        pytest.skip("no memory file system here")
    rates = measure_storage_rates(shm, size=8 * READ_BLOCK_BYTES, budget=0.01)
    assert "O_DIRECT" in rates.method
    assert rates.cold.rate > 0


@pytest.mark.timeout(60)
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_killed_measurement_leaves_no_file(tmp_path: Path, end: signal.Signals) -> None:
    code = (
        "import sys; from pathlib import Path; from tessera.machine.probes import storage_rates\n"
        "storage_rates(Path(sys.argv[1]), size=64 << 20, budget=30, progress=lambda s: print(s, flush=True))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "cold" in line:
                break
        process.send_signal(end)
        process.wait(20)
    assert process.returncode != 0
    assert list(tmp_path.iterdir()) == []


@given(st.integers(1, 300))
def test_thread_counts_reach_from_one_to_all(cores: int) -> None:
    counts = choose_thread_counts(cores)
    assert counts[0] == 1
    assert counts[-1] == cores
    assert counts == sorted(set(counts))
    assert len(counts) <= 10


@given(st.integers(1, 100), st.data())
def test_an_interpolated_table_keeps_the_measured_values(cores: int, data: st.DataObject) -> None:
    measured = {n: data.draw(st.floats(1, 1e12)) for n in choose_thread_counts(cores)}
    table = interpolate_over_threads(measured, cores)
    assert len(table) == cores
    for n, rate in measured.items():
        assert table[n - 1] == rate
    assert min(measured.values()) * 0.999 <= min(table)
    assert max(table) <= max(measured.values()) * 1.001


def test_a_busy_machine_is_noted() -> None:
    assert find_disturbances({"a": (10.0, 19.0, 18.0)}, {"a": (0.01, 0.1, 0.15)}) == ()
    notes = find_disturbances({"a": (10.0, 7.0), "b": (1.0,), "c": (1.0, 2.0)}, {"a": (0, 0), "b": (0.5,), "c": (0, 0)})
    assert [note.partition(";")[0] for note in notes] == [
        "a: slower with 2 threads than with 1",
        "b: its repetitions were 50% apart",
    ]


def test_the_number_of_repetitions_is_bounded() -> None:
    calls: list[int] = []
    best = measure_best_rate(lambda: calls.append(1), 10.0, budget=0.0, before=lambda: calls.append(0))
    assert calls == [0, 1] * 3
    assert best.rate > 0
    assert 0 <= best.spread < 1
    calls.clear()
    measure_best_rate(lambda: calls.append(1), 10.0, budget=60.0, most=7)
    assert len(calls) == 7
