"""Tests of ranks started by torchrun and mpiexec: results, core pinning, failures, and no leftover processes."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tessera.errors import BenchmarkFailed, MissingExtra, TesseraError, TimedOut
from tessera.launch import LaunchConfig, Workers
from tessera.launch.commands import list_launchers
from tessera.launch.config import SpawnMethod
from tessera.launch.placement import get_available_cpus, place_workers, read_numa_nodes
from tests.launch.process_checks import end_within, find_running, start_hanging_parent

FUNCTIONS = "tests.launch.worker_functions"
SPAWN_METHODS: list[SpawnMethod] = ["torchrun", "mpiexec"]
pytestmark = [pytest.mark.timeout(100), pytest.mark.ranks]


@pytest.fixture(scope="module", params=SPAWN_METHODS)
def four_ranks(request: pytest.FixtureRequest) -> Iterator[Workers]:
    """Workers with four ranks, usually more than there are cores."""
    with Workers(LaunchConfig(spawn=request.param, workers=4)) as workers:
        yield workers


def test_results_are_ordered_by_rank(four_ranks: Workers) -> None:
    calls = [four_ranks.run(f"{FUNCTIONS}:multiply_rank", factor) for factor in (3, 5)]
    assert [[value for value, _, _ in ranks] for ranks in calls] == [[0, 3, 6, 9], [0, 5, 10, 15]]
    assert len({pid for _, _, pid in calls[0]}) == 4
    assert [pid for *_, pid in calls[0]] == [pid for *_, pid in calls[1]]


def test_ranks_have_their_affinity_and_environment(four_ranks: Workers) -> None:
    expected = place_workers(4, 1, get_available_cpus(), read_numa_nodes())
    for rank, worker in enumerate(four_ranks.run(f"{FUNCTIONS}:describe_surroundings")):
        assert worker["affinity"] == worker["cpus"] == expected[rank]
        assert worker["env"]["OMP_NUM_THREADS"] == "1"
        assert worker["allocator"] == "steady"
        assert worker["job"] is None, "a worker of ours took itself for a user's job"


def test_ranks_are_synchronised_and_agree_on_values(four_ranks: Workers) -> None:
    steps = four_ranks.run(f"{FUNCTIONS}:keep_step", 40, 0.3)
    assert [agreed for agreed, _, _ in steps] == [40] * 4
    assert min(left for _, _, left in steps) >= max(came for _, came, _ in steps)


def test_errors_leave_the_ranks_usable(four_ranks: Workers) -> None:
    before = four_ranks.run(f"{FUNCTIONS}:multiply_rank", 1)
    with pytest.raises(BenchmarkFailed, match=r"rank 2 of 4 raised ZeroDivisionError: nothing left \(worker_functions"):
        four_ranks.run(f"{FUNCTIONS}:raise_on_rank", 2)
    assert four_ranks.run(f"{FUNCTIONS}:multiply_rank", 1) == before


@pytest.mark.parametrize("spawn", SPAWN_METHODS)
def test_two_ranks_do_not_import_their_library_at_start(spawn: SpawnMethod, capsys: pytest.CaptureFixture[str]) -> None:
    with Workers(LaunchConfig(spawn=spawn, workers=2, tag_output=True)) as workers:
        workers_seen = workers.run(f"{FUNCTIONS}:describe_surroundings")
        workers.run(f"{FUNCTIONS}:print_words", "hello")
    assert [(s["torch"], s["mpi"]) for s in workers_seen] == [(False, False)] * 2
    shown = capsys.readouterr().err
    assert all(f"[{rank}/2] native hello from {rank}\n" in shown for rank in (0, 1))


@pytest.mark.parametrize("spawn", SPAWN_METHODS)
def test_a_dead_rank_ends_the_other_ranks(spawn: SpawnMethod, own_temp: Path) -> None:
    with Workers(LaunchConfig(spawn=spawn, workers=2)) as workers:
        before = [pid for *_, pid in workers.run(f"{FUNCTIONS}:multiply_rank", 1)]
        workers.run(f"{FUNCTIONS}:keep_step", 1, 0.0)  # load the library before the time is measured
        began = time.monotonic()
        with pytest.raises(BenchmarkFailed) as caught:
            workers.run(f"{FUNCTIONS}:kill_one_rank", 1, int(signal.SIGKILL))
        assert time.monotonic() - began < 10
        assert not find_running(before)
    assert str(caught.value) == "rank 1 of 2 died of SIGKILL; last output: so long, and thanks"
    assert not list(own_temp.glob("tessera-*"))


@pytest.mark.parametrize("spawn", SPAWN_METHODS)
def test_the_time_limit_ends_the_whole_process_tree(spawn: SpawnMethod, tmp_path: Path, own_temp: Path) -> None:
    note = tmp_path / "pids"
    with Workers(LaunchConfig(spawn=spawn, workers=2)) as workers:
        began = time.monotonic()
        with pytest.raises(TimedOut, match="time limit of 1 s from rank 0, 1 of 2"):
            workers.run(f"{FUNCTIONS}:hold_interpreter", str(note), time_limit=1.0)
        assert time.monotonic() - began < 15
        pids = [int(pid) for rank in (0, 1) for pid in Path(f"{note}.{rank}").read_text().split()]
        assert len(pids) == 4
        assert not find_running(pids)
    assert not list(own_temp.glob("tessera-*"))


@pytest.mark.parametrize("spawn", SPAWN_METHODS)
def test_ranks_end_with_a_killed_parent(spawn: SpawnMethod, tmp_path: Path) -> None:
    import psutil

    parent, started = start_hanging_parent(spawn, tmp_path / "pids")
    tree = [child.pid for child in psutil.Process(parent.pid).children(recursive=True)]
    assert set(started) <= set(tree)
    parent.kill()
    parent.wait(20)
    assert end_within(tree, 10)


def test_ranks_of_torch_listen_on_loopback_only(own_temp: Path) -> None:
    import psutil

    with Workers(LaunchConfig(spawn="torchrun", workers=2)) as workers:
        pids = [pid for *_, pid in workers.run(f"{FUNCTIONS}:multiply_rank", 1)]
        workers.run(f"{FUNCTIONS}:keep_step", 1, 0.0)  # connects the ranks
        tree = [p for pid in pids for p in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True))]
        assert all(psutil.Process(pid).ppid() == os.getpid() for pid in pids)  # no launcher in between
        listening = [c.laddr.ip for p in tree for c in p.net_connections("inet") if c.status == psutil.CONN_LISTEN]
        assert listening  # gloo's own connections
        assert set(listening) <= {"127.0.0.1", "::1"}
        assert not list(own_temp.glob("tessera-*"))  # the store of the rendezvous is no file that others could open


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "mpi4py" else real(name))
    with pytest.raises(MissingExtra, match=r"mpi4py is not installed: pip install 'tessera\[mpi\]'"):
        Workers(LaunchConfig(spawn="mpiexec")).__enter__()
    assert {name: usable for name, usable, _ in list_launchers()}["mpiexec"] is False


def test_a_missing_mpiexec_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingExtra, match="mpiexec is not installed"):
        Workers(LaunchConfig(spawn="mpiexec", python=str(python))).__enter__()


def test_a_broken_mpiexec_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "mpiexec").write_text("not a program")
    (tmp_path / "mpiexec").chmod(0o755)
    with pytest.raises(TesseraError, match="cannot run mpiexec"):
        Workers(LaunchConfig(spawn="mpiexec", python=str(tmp_path / "python"))).__enter__()


def test_all_launchers_are_listed() -> None:
    launchers = list_launchers()
    assert [name for name, _, _ in launchers] == ["inline", "processes", "torchrun", "mpiexec"]
    assert all(usable and how for _, usable, how in launchers)
