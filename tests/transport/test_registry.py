"""Tests of the transport registry: launchers, status of transports, and refusals with reasons."""

from __future__ import annotations

import importlib.util
import json
import os

import pytest

from tessera.cli.main import main
from tessera.errors import TesseraError
from tessera.launch.config import SpawnMethod
from tessera.launch.worker import Worker
from tessera.measure.sync import SINGLE_RANK
from tessera.transport.registry import TRANSPORTS, get_spawn, list_transports, open_transport


def make_worker(spawn: SpawnMethod, size: int) -> Worker:
    return Worker(rank=0, size=size, spawn=spawn, cpus=(), threads=1, sync=SINGLE_RANK)


@pytest.fixture
def no_mpi4py(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "mpi4py" else real(name))


def test_launcher_of_each_transport() -> None:
    assert {name: get_spawn(name) for name in TRANSPORTS} == {
        "auto": "mpiexec",
        "shared": "mpiexec",
        "mpi": "mpiexec",
        "shm": "torchrun",
        "gloo": "torchrun",
    }
    with pytest.raises(TesseraError, match="unknown transport: got 'tcp'; allowed: auto, shared, mpi, shm, gloo"):
        get_spawn("tcp")


def test_all_are_usable_here() -> None:
    assert [(name, works) for name, _, works, _ in list_transports()] == [(name, True) for name in TRANSPORTS]


def test_without_mpi_the_ranks_of_torchrun_are_used(no_mpi4py: None) -> None:
    assert get_spawn("auto") == "torchrun"
    transports = {name: (works, how) for name, _, works, how in list_transports()}
    assert transports["auto"] == transports["gloo"] == (True, "ranks of torchrun")
    assert transports["shared"] == transports["mpi"] == (False, "mpi4py is not installed: pip install 'tessera[mpi]'")


def test_without_memfd_mpi_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    transports = {name: (works, how) for name, _, works, how in list_transports()}
    assert not transports["shared"][0]
    assert transports["shared"][1].endswith("has no anonymous shared memory (memfd_create); use mpi")
    assert transports["mpi"][0]


def test_a_single_worker_needs_no_ranks() -> None:
    for name in TRANSPORTS:
        assert open_transport(name, make_worker("inline", 1)).size == 1
    with pytest.raises(TesseraError, match="unknown transport"):
        open_transport("tcp", make_worker("inline", 1))


@pytest.mark.parametrize(
    ("name", "spawn", "says"),
    [
        ("auto", "processes", "not connected: got '2 workers of processes'; allowed: ranks of torchrun or mpiexec"),
        (
            "shared",
            "torchrun",
            "the transport is not supported by ranks of torchrun: got 'shared'; allowed: auto, shm, gloo; for",
        ),
        ("gloo", "mpiexec", "allowed: auto, shared, mpi; for gloo, start the ranks with torchrun"),
    ],
)
def test_unsupported_transports_are_refused(name: str, spawn: SpawnMethod, says: str) -> None:
    with pytest.raises(TesseraError, match=says):
        open_transport(name, make_worker(spawn, 2))


def test_transports_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "transports", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == list(TRANSPORTS)
    assert all(row["usable"] == "yes" for row in rows)
    assert main(["list", "transports"]) == 0
    shown = capsys.readouterr().out
    assert "every border copied once" in shown
    assert "ranks of torchrun" in shown
