"""Pinned processes: results, surroundings, failures, and nothing left behind."""

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
from tessera.launch.placement import available_cpus, numa_nodes, placement
from tests.launch.leftovers import alive, gone_within, hanging_parent

CHORES = "tests.launch.chores"
pytestmark = pytest.mark.timeout(60)


@pytest.fixture(autouse=True)
def _nothing_left(own_temp: Path) -> Iterator[None]:
    threads = threading.active_count()
    yield
    assert not list(own_temp.iterdir())
    assert threading.active_count() == threads


@pytest.fixture(scope="module")
def pair() -> Iterator[Workers]:
    """Two workers that tests share, as long as they leave them usable."""
    with Workers(LaunchConfig(workers=2, threads=2)) as workers:
        yield workers


def pids(workers: Workers) -> list[int]:
    return [pid for _, _, pid in workers.run(f"{CHORES}:times", 1)]


@pytest.mark.parametrize("workers", [1, 4])
def test_results_by_rank(workers: int) -> None:
    with Workers(LaunchConfig(workers=workers)) as crew:
        found = crew.run(f"{CHORES}:times", 7)
        assert [(value, size) for value, size, _ in found] == [(7 * r, workers) for r in range(workers)]
        started = [pid for _, _, pid in found]
        assert len({*started, os.getpid()}) == workers + 1
    assert not alive(started)


def test_calls_keep_the_same_processes(pair: Workers) -> None:
    first = pids(pair)
    counts = [pair.run(f"{CHORES}:count") for _ in range(3)]
    assert [c - counts[0][0] for c, _ in counts] == [0, 1, 2]
    assert pids(pair) == first


def test_pinning_and_threads(pair: Workers) -> None:
    expected = placement(2, 2, available_cpus(), numa_nodes())
    for rank, seen in enumerate(pair.run(f"{CHORES}:surroundings")):
        assert seen["cpus"] == expected[rank]
        assert set(seen["affinity"]) == set(expected[rank])
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            assert seen["env"][name] == "2"
        assert seen["allocator"] == "steady"
        assert seen["job"] is None
        assert not seen["torch"], "a worker imports torch only if its function does"
    assert pair.run(f"{CHORES}:torch_threads") == [2, 2]


def test_one_core_each() -> None:
    with Workers(LaunchConfig(workers=4)) as workers:
        seen = workers.run(f"{CHORES}:surroundings")
    assert all(len(s["affinity"]) == 1 for s in seen)
    assert {c for s in seen for c in s["affinity"]} == set(available_cpus()[:4])


def test_unpinned_with_the_systems_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    monkeypatch.setenv("MALLOC_TOP_PAD_", "4096")
    config = LaunchConfig(pin=False, allocator="system", env={"OMP_NUM_THREADS": "5", "OWN": "x"})
    with Workers(config) as workers:
        (seen,) = workers.run(f"{CHORES}:surroundings")
    assert seen["affinity"] == available_cpus()
    assert seen["cpus"] == ()
    assert not [name for name in seen["env"] if name.startswith("MALLOC_")]
    assert (seen["allocator"], seen["env"]["OMP_NUM_THREADS"], seen["env"]["OWN"]) == ("system", "5", "x")


def test_ranks_keep_step(pair: Workers) -> None:
    found = pair.run(f"{CHORES}:keep_step", 40, 0.3)
    assert [agreed for agreed, _, _ in found] == [40, 40]
    assert min(left for _, _, left in found) >= max(came for _, came, _ in found)


def test_output_is_tagged(capsys: pytest.CaptureFixture[str]) -> None:
    with Workers(LaunchConfig(workers=2, tag_output=True)) as workers:
        workers.run(f"{CHORES}:talk", "hello")
    shown = capsys.readouterr()
    assert shown.out == ""
    for rank in (0, 1):
        assert f"[{rank}/2] hello from {rank}\n" in shown.err
        assert f"[{rank}/2] native hello from {rank}\n" in shown.err


def test_output_is_silent_by_default(pair: Workers, capfd: pytest.CaptureFixture[str]) -> None:
    pair.run(f"{CHORES}:talk", "hello")
    assert capfd.readouterr() == ("", "")


def test_an_error_of_the_user_keeps_its_type(pair: Workers) -> None:
    before = pids(pair)
    with pytest.raises(Refused, match="not this one: got 0; allowed: another"):
        pair.run(f"{CHORES}:refuse")
    assert pids(pair) == before


def test_another_error_says_where(pair: Workers) -> None:
    before = pids(pair)
    with pytest.raises(BenchmarkFailed) as caught:
        pair.run(f"{CHORES}:stumble", 1)
    assert str(caught.value).startswith("rank 1 of 2 raised ZeroDivisionError: nothing left (chores.py:")
    assert pids(pair) == before


def test_values_that_cannot_travel(pair: Workers) -> None:
    with pytest.raises(BenchmarkFailed, match="rank 0 of 2 gave a result that cannot be sent"):
        pair.run(f"{CHORES}:unsendable")
    with pytest.raises(BenchmarkFailed, match="the result of rank 0 cannot be read here: ValueError"):
        pair.run(f"{CHORES}:unloadable")
    with pytest.raises(TesseraError, match="have to be picklable"):
        pair.run(f"{CHORES}:times", lambda: 1)
    with pytest.raises(BenchmarkFailed, match="ModuleNotFoundError: No module named 'no_such_module'"):
        pair.run("no_such_module:function")


def test_a_rank_that_raises_while_another_waits_ends_both() -> None:
    with Workers(LaunchConfig(workers=2)) as workers:
        before = pids(workers)
        began = time.monotonic()
        with pytest.raises(BenchmarkFailed, match="rank 1 of 2 raised ZeroDivisionError"):
            workers.run(f"{CHORES}:stumble_and_hang")
        assert time.monotonic() - began < 10
        assert not alive(before)
        assert not set(before) & set(pids(workers)), "the next call starts new workers"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_rank_that_dies_takes_the_others_down(number: signal.Signals) -> None:
    with Workers(LaunchConfig(workers=3)) as workers:
        before = pids(workers)
        began = time.monotonic()
        with pytest.raises(BenchmarkFailed) as caught:
            workers.run(f"{CHORES}:die", 1, int(number))
        assert time.monotonic() - began < 10
        assert not alive(before)
    assert str(caught.value).startswith(f"rank 1 of 3 died of {number.name}; last words: so long, and thanks")
    assert "\n" not in str(caught.value)


def test_a_native_abort_says_in_which_function() -> None:
    with Workers(LaunchConfig()) as workers, pytest.raises(BenchmarkFailed) as caught:
        workers.run(f"{CHORES}:abort_natively")
    assert "rank 0 of 1 died of SIGABRT; last words: Fatal Python error: Aborted" in str(caught.value)
    assert str(caught.value).endswith("in abort_natively")


def test_a_rank_that_exits() -> None:
    with Workers(LaunchConfig()) as workers:
        with pytest.raises(BenchmarkFailed, match="rank 0 of 1 ended with exit code 7; it left no last words"):
            workers.run(f"{CHORES}:leave", 7)
        assert workers.run(f"{CHORES}:count") == [1]


def test_a_worker_that_cannot_start() -> None:
    with pytest.raises(BenchmarkFailed, match=r"rank 0 of 1 ended with exit code 1; last words: .*not_there"):
        Workers(LaunchConfig(env={"PYTHONPATH": "", "PYTHONHOME": "/not_there"})).__enter__()


def test_the_time_limit_ends_the_whole_tree(tmp_path: Path) -> None:
    """Even of workers that ignore SIGTERM, hold the interpreter, and have children."""
    note = tmp_path / "pids"
    began = time.monotonic()
    with Workers(LaunchConfig(workers=2, time_limit=1.0)) as workers:
        with pytest.raises(TimedOut) as caught:
            workers.run(f"{CHORES}:hold_interpreter", str(note))
        assert time.monotonic() - began < 15
        left = [int(pid) for rank in (0, 1) for pid in Path(f"{note}.{rank}").read_text().split()]
        assert len(left) == 4
        assert not alive(left)
    assert str(caught.value) == "no answer within the time limit of 1 s from rank 0, 1 of 2"


def test_a_call_has_its_own_limit() -> None:
    with Workers(LaunchConfig(time_limit=50.0)) as workers:
        with pytest.raises(TimedOut, match=r"0\.2 s"):
            workers.run(f"{CHORES}:pause", 30.0, time_limit=0.2)
        with pytest.raises(TesseraError, match="a time limit is positive"):
            workers.run(f"{CHORES}:pause", 0.0, time_limit=-1.0)


def test_waiting_costs_the_parent_nothing(pair: Workers) -> None:
    before = time.process_time()
    pair.run(f"{CHORES}:pause", 2.0)
    assert time.process_time() - before < 0.2


def test_restart_gives_new_processes() -> None:
    with Workers(LaunchConfig()) as workers:
        before = pids(workers)
        workers.restart()
        assert not alive(before)
        assert pids(workers) != before


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_the_parent(number: signal.Signals, tmp_path: Path) -> None:
    parent, started = hanging_parent("processes", tmp_path / "pids")
    parent.send_signal(number)
    parent.wait(20)
    assert gone_within(started, 5)
