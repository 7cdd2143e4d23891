"""Ranks of torchrun and mpiexec behave like pinned processes: results, failures, nothing left behind."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tessera.errors import BenchmarkFailed, MissingExtra, TesseraError, TimedOut
from tessera.launch import LaunchConfig, Workers
from tessera.launch.config import Spawn
from tessera.launch.placement import available_cpus, numa_nodes, placement
from tessera.launch.spawns import launchers
from tests.launch.leftovers import alive, gone_within, hanging_parent

CHORES = "tests.launch.chores"
SPAWNS: list[Spawn] = ["torchrun", "mpiexec"]
pytestmark = [pytest.mark.timeout(100), pytest.mark.ranks]


@pytest.fixture(scope="module", params=SPAWNS)
def four(request: pytest.FixtureRequest) -> Iterator[Workers]:
    """Four ranks, most likely on fewer cores."""
    with Workers(LaunchConfig(spawn=request.param, workers=4)) as workers:
        yield workers


def test_results_by_rank(four: Workers) -> None:
    found = [four.run(f"{CHORES}:times", factor) for factor in (3, 5)]
    assert [[value for value, _, _ in ranks] for ranks in found] == [[0, 3, 6, 9], [0, 5, 10, 15]]
    assert len({pid for _, _, pid in found[0]}) == 4
    assert [pid for *_, pid in found[0]] == [pid for *_, pid in found[1]]


def test_surroundings(four: Workers) -> None:
    expected = placement(4, 1, available_cpus(), numa_nodes())
    for rank, seen in enumerate(four.run(f"{CHORES}:surroundings")):
        assert seen["affinity"] == seen["cpus"] == expected[rank]
        assert seen["env"]["OMP_NUM_THREADS"] == "1"
        assert seen["allocator"] == "steady"
        assert seen["job"] is None, "a worker of ours took itself for a user's job"


def test_ranks_keep_step(four: Workers) -> None:
    found = four.run(f"{CHORES}:keep_step", 40, 0.3)
    assert [agreed for agreed, _, _ in found] == [40] * 4
    assert min(left for _, _, left in found) >= max(came for _, came, _ in found)


def test_errors_leave_the_ranks_usable(four: Workers) -> None:
    before = four.run(f"{CHORES}:times", 1)
    with pytest.raises(BenchmarkFailed, match=r"rank 2 of 4 raised ZeroDivisionError: nothing left \(chores"):
        four.run(f"{CHORES}:stumble", 2)
    assert four.run(f"{CHORES}:times", 1) == before


@pytest.mark.parametrize("spawn", SPAWNS)
def test_two_ranks_start_without_their_library(spawn: Spawn, capsys: pytest.CaptureFixture[str]) -> None:
    with Workers(LaunchConfig(spawn=spawn, workers=2, tag_output=True)) as workers:
        seen = workers.run(f"{CHORES}:surroundings")
        workers.run(f"{CHORES}:talk", "hello")
    assert [(s["torch"], s["mpi"]) for s in seen] == [(False, False)] * 2
    shown = capsys.readouterr().err
    assert all(f"[{rank}/2] native hello from {rank}\n" in shown for rank in (0, 1))


@pytest.mark.parametrize("spawn", SPAWNS)
def test_a_rank_that_dies_takes_the_others_down(spawn: Spawn, own_temp: Path) -> None:
    with Workers(LaunchConfig(spawn=spawn, workers=2)) as workers:
        before = [pid for *_, pid in workers.run(f"{CHORES}:times", 1)]
        workers.run(f"{CHORES}:keep_step", 1, 0.0)  # the library is loaded: its start does not count
        began = time.monotonic()
        with pytest.raises(BenchmarkFailed) as caught:
            workers.run(f"{CHORES}:die", 1, int(signal.SIGKILL))
        assert time.monotonic() - began < 10
        assert not alive(before)
    assert str(caught.value) == "rank 1 of 2 died of SIGKILL; last words: so long, and thanks"
    assert not list(own_temp.glob("tessera-*"))


@pytest.mark.parametrize("spawn", SPAWNS)
def test_the_time_limit_ends_the_whole_tree(spawn: Spawn, tmp_path: Path, own_temp: Path) -> None:
    note = tmp_path / "pids"
    with Workers(LaunchConfig(spawn=spawn, workers=2)) as workers:
        began = time.monotonic()
        with pytest.raises(TimedOut, match="time limit of 1 s from rank 0, 1 of 2"):
            workers.run(f"{CHORES}:hold_interpreter", str(note), time_limit=1.0)
        assert time.monotonic() - began < 15
        left = [int(pid) for rank in (0, 1) for pid in Path(f"{note}.{rank}").read_text().split()]
        assert len(left) == 4
        assert not alive(left)
    assert not list(own_temp.glob("tessera-*"))


@pytest.mark.parametrize("spawn", SPAWNS)
def test_nothing_outlives_a_killed_parent(spawn: Spawn, tmp_path: Path) -> None:
    import psutil

    parent, started = hanging_parent(spawn, tmp_path / "pids")
    tree = [child.pid for child in psutil.Process(parent.pid).children(recursive=True)]
    assert set(started) <= set(tree)
    parent.kill()
    parent.wait(20)
    assert gone_within(tree, 10)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "mpi4py" else real(name))
    with pytest.raises(MissingExtra, match=r"mpi4py is not installed: pip install 'tessera\[mpi\]'"):
        Workers(LaunchConfig(spawn="mpiexec")).__enter__()
    assert {name: usable for name, usable, _ in launchers()}["mpiexec"] is False


def test_an_mpiexec_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingExtra, match="mpiexec is not installed"):
        Workers(LaunchConfig(spawn="mpiexec", python=str(python))).__enter__()


def test_an_mpiexec_that_does_not_work(tmp_path: Path) -> None:
    (tmp_path / "mpiexec").write_text("not a program")
    (tmp_path / "mpiexec").chmod(0o755)
    with pytest.raises(TesseraError, match="mpiexec does not start"):
        Workers(LaunchConfig(spawn="mpiexec", python=str(tmp_path / "python"))).__enter__()


def test_all_launchers_are_listed() -> None:
    found = launchers()
    assert [name for name, _, _ in found] == ["inline", "processes", "torchrun", "mpiexec"]
    assert all(usable and how for _, usable, how in found)
