"""Tests of pinned worker processes: results, environment, failures, and no remaining process."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tessera.errors import BenchmarkFailed, Refused, TesseraError, TimedOut
from tessera.launch import LaunchConfig, Workers
from tessera.launch.placement import get_available_cpus, place_workers, read_numa_nodes
from tests.launch.process_checks import end_within, find_running, start_hanging_parent

FUNCTIONS = "tests.launch.worker_functions"
pytestmark = pytest.mark.timeout(60)


@pytest.fixture(autouse=True)
def _check_no_leftovers(own_temp: Path) -> Iterator[None]:
    threads = threading.active_count()
    yield
    assert not list(own_temp.iterdir())
    assert threading.active_count() == threads


@pytest.fixture(scope="module")
def pair() -> Iterator[Workers]:
    """Start two workers, shared by all tests after which workers are still usable."""
    with Workers(LaunchConfig(workers=2, threads=2)) as workers:
        yield workers


def list_pids(workers: Workers) -> list[int]:
    return [pid for _, _, pid in workers.run(f"{FUNCTIONS}:multiply_rank", 1)]


@pytest.mark.parametrize("workers", [1, 4])
def test_results_are_ordered_by_rank(workers: int) -> None:
    with Workers(LaunchConfig(workers=workers)) as pool:
        results = pool.run(f"{FUNCTIONS}:multiply_rank", 7)
        assert [(value, size) for value, size, _ in results] == [(7 * r, workers) for r in range(workers)]
        started = [pid for _, _, pid in results]
        assert len({*started, os.getpid()}) == workers + 1
    assert not find_running(started)


def test_calls_keep_the_same_processes(pair: Workers) -> None:
    first = list_pids(pair)
    counts = [pair.run(f"{FUNCTIONS}:count") for _ in range(3)]
    assert [c - counts[0][0] for c, _ in counts] == [0, 1, 2]
    assert list_pids(pair) == first


def test_workers_are_pinned_and_limit_their_threads(pair: Workers) -> None:
    expected = place_workers(2, 2, get_available_cpus(), read_numa_nodes())
    for rank, worker in enumerate(pair.run(f"{FUNCTIONS}:describe_surroundings")):
        assert worker["cpus"] == expected[rank]
        assert set(worker["affinity"]) == set(expected[rank])
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            assert worker["env"][name] == "2"
        assert worker["allocator"] == "steady"
        assert worker["job"] is None
        assert not worker["torch"], "a worker imports torch only if its function does"
    assert pair.run(f"{FUNCTIONS}:get_torch_threads") == [2, 2]


def test_each_worker_is_pinned_to_one_core() -> None:
    with Workers(LaunchConfig(workers=4)) as workers:
        environments = workers.run(f"{FUNCTIONS}:describe_surroundings")
    assert all(len(s["affinity"]) == 1 for s in environments)
    assert {c for s in environments for c in s["affinity"]} == set(get_available_cpus()[:4])


def test_workers_can_be_unpinned_with_the_system_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    monkeypatch.setenv("MALLOC_TOP_PAD_", "4096")
    config = LaunchConfig(pin=False, allocator="system", env={"OMP_NUM_THREADS": "5", "OWN": "x"})
    with Workers(config) as workers:
        (environment,) = workers.run(f"{FUNCTIONS}:describe_surroundings")
    assert environment["affinity"] == get_available_cpus()
    assert environment["cpus"] == ()
    assert not [name for name in environment["env"] if name.startswith("MALLOC_")]
    assert (environment["allocator"], environment["env"]["OMP_NUM_THREADS"], environment["env"]["OWN"]) == (
        "system",
        "5",
        "x",
    )


def test_ranks_are_synchronised_and_agree_on_values(pair: Workers) -> None:
    steps = pair.run(f"{FUNCTIONS}:keep_step", 40, 0.3)
    assert [agreed for agreed, _, _ in steps] == [40, 40]
    assert min(left for _, _, left in steps) >= max(came for _, came, _ in steps)


def test_output_is_tagged(capsys: pytest.CaptureFixture[str]) -> None:
    with Workers(LaunchConfig(workers=2, tag_output=True)) as workers:
        workers.run(f"{FUNCTIONS}:print_words", "hello")
    shown = capsys.readouterr()
    assert shown.out == ""
    for rank in (0, 1):
        assert f"[{rank}/2] hello from {rank}\n" in shown.err
        assert f"[{rank}/2] native hello from {rank}\n" in shown.err


def test_output_is_silent_by_default(pair: Workers, capfd: pytest.CaptureFixture[str]) -> None:
    pair.run(f"{FUNCTIONS}:print_words", "hello")
    assert capfd.readouterr() == ("", "")


def test_an_error_of_the_user_keeps_its_type(pair: Workers) -> None:
    before = list_pids(pair)
    with pytest.raises(Refused, match="not this one: got 0; allowed: another"):
        pair.run(f"{FUNCTIONS}:refuse")
    assert list_pids(pair) == before


def test_other_errors_report_their_location(pair: Workers) -> None:
    before = list_pids(pair)
    with pytest.raises(BenchmarkFailed) as caught:
        pair.run(f"{FUNCTIONS}:raise_on_rank", 1)
    assert str(caught.value).startswith("rank 1 of 2 raised ZeroDivisionError: nothing left (worker_functions.py:")
    assert list_pids(pair) == before


def test_values_that_cannot_be_pickled_are_errors(pair: Workers) -> None:
    with pytest.raises(BenchmarkFailed, match="rank 0 of 2 returned a value that cannot be pickled"):
        pair.run(f"{FUNCTIONS}:return_unpicklable")
    with pytest.raises(BenchmarkFailed, match="the result of rank 0 cannot be unpickled: ValueError"):
        pair.run(f"{FUNCTIONS}:return_unloadable")
    with pytest.raises(TesseraError, match="cannot be pickled"):
        pair.run(f"{FUNCTIONS}:multiply_rank", lambda: 1)
    with pytest.raises(BenchmarkFailed, match="ModuleNotFoundError: No module named 'no_such_module'"):
        pair.run("no_such_module:function")


def test_a_rank_that_raises_while_another_waits_ends_both() -> None:
    with Workers(LaunchConfig(workers=2)) as workers:
        before = list_pids(workers)
        began = time.monotonic()
        with pytest.raises(BenchmarkFailed, match="rank 1 of 2 raised ZeroDivisionError"):
            workers.run(f"{FUNCTIONS}:raise_and_hang")
        assert time.monotonic() - began < 10
        assert not find_running(before)
        assert not set(before) & set(list_pids(workers)), "the next call starts new workers"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_dead_rank_ends_the_other_ranks(number: signal.Signals) -> None:
    with Workers(LaunchConfig(workers=3)) as workers:
        before = list_pids(workers)
        began = time.monotonic()
        with pytest.raises(BenchmarkFailed) as caught:
            workers.run(f"{FUNCTIONS}:kill_one_rank", 1, int(number))
        assert time.monotonic() - began < 10
        assert not find_running(before)
    assert str(caught.value).startswith(f"rank 1 of 3 died of {number.name}; last output: so long, and thanks")
    assert "\n" not in str(caught.value)


def test_a_native_abort_names_the_python_function() -> None:
    with Workers(LaunchConfig()) as workers, pytest.raises(BenchmarkFailed) as caught:
        workers.run(f"{FUNCTIONS}:abort_natively")
    assert "rank 0 of 1 died of SIGABRT; last output: Fatal Python error: Aborted" in str(caught.value)
    assert str(caught.value).endswith("in abort_natively")


def test_a_rank_that_exits_is_an_error_with_its_exit_code() -> None:
    with Workers(LaunchConfig()) as workers:
        with pytest.raises(BenchmarkFailed, match="rank 0 of 1 ended with exit code 7; no output"):
            workers.run(f"{FUNCTIONS}:exit_with_code", 7)
        assert workers.run(f"{FUNCTIONS}:count") == [1]


def test_a_worker_that_cannot_start_is_an_error() -> None:
    with pytest.raises(BenchmarkFailed, match=r"rank 0 of 1 ended with exit code 1; last output: .*not_there"):
        Workers(LaunchConfig(env={"PYTHONPATH": "", "PYTHONHOME": "/not_there"})).__enter__()


def test_the_time_limit_ends_the_whole_process_tree(tmp_path: Path) -> None:
    """Check the time limit with workers that ignore SIGTERM, hold the interpreter lock and have child processes."""
    note = tmp_path / "pids"
    began = time.monotonic()
    with Workers(LaunchConfig(workers=2, time_limit=1.0)) as workers:
        with pytest.raises(TimedOut) as caught:
            workers.run(f"{FUNCTIONS}:hold_interpreter", str(note))
        assert time.monotonic() - began < 15
        pids = [int(pid) for rank in (0, 1) for pid in Path(f"{note}.{rank}").read_text().split()]
        assert len(pids) == 4
        assert not find_running(pids)
    assert str(caught.value) == "no answer within the time limit of 1 s from rank 0, 1 of 2"


def test_a_call_can_override_the_time_limit() -> None:
    with Workers(LaunchConfig(time_limit=50.0)) as workers:
        with pytest.raises(TimedOut, match=r"0\.2 s"):
            workers.run(f"{FUNCTIONS}:pause", 30.0, time_limit=0.2)
        with pytest.raises(TesseraError, match="invalid time limit: got"):
            workers.run(f"{FUNCTIONS}:pause", 0.0, time_limit=-1.0)


def test_waiting_takes_no_cpu_time(pair: Workers) -> None:
    before = time.process_time()
    pair.run(f"{FUNCTIONS}:pause", 2.0)
    assert time.process_time() - before < 0.2


def test_restart_starts_new_processes() -> None:
    with Workers(LaunchConfig()) as workers:
        before = list_pids(workers)
        workers.restart()
        assert not find_running(before)
        assert list_pids(workers) != before


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_end_with_their_parent(number: signal.Signals, tmp_path: Path) -> None:
    parent, started = start_hanging_parent("processes", tmp_path / "pids")
    parent.send_signal(number)
    parent.wait(20)
    assert end_within(started, 5)
