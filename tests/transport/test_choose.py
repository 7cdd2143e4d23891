"""Transports by name: what is there, what starts their ranks, what cannot be had and why."""

from __future__ import annotations

import importlib.util
import json
import os

import pytest

from tessera.cli.main import main
from tessera.errors import TesseraError
from tessera.launch.config import Spawn
from tessera.launch.worker import Worker
from tessera.measure.sync import ALONE
from tessera.transport.choose import TRANSPORTS, open_transport, spawn_of, usable


def worker(spawn: Spawn, size: int) -> Worker:
    return Worker(rank=0, size=size, spawn=spawn, cpus=(), threads=1, sync=ALONE)


@pytest.fixture
def no_mpi4py(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "mpi4py" else real(name))


def test_who_starts_the_ranks() -> None:
    assert {name: spawn_of(name) for name in TRANSPORTS} == {
        "auto": "mpiexec",
        "shared": "mpiexec",
        "mpi": "mpiexec",
        "gloo": "torchrun",
    }
    with pytest.raises(TesseraError, match="unknown transport: got 'tcp'; allowed: auto, shared, mpi, gloo"):
        spawn_of("tcp")


def test_all_are_usable_here() -> None:
    assert [(name, works) for name, _, works, _ in usable()] == [(name, True) for name in TRANSPORTS]


def test_without_mpi_there_is_gloo(no_mpi4py: None) -> None:
    assert spawn_of("auto") == "torchrun"
    found = {name: (works, how) for name, _, works, how in usable()}
    assert found["auto"] == found["gloo"] == (True, "ranks of torchrun")
    assert found["shared"] == found["mpi"] == (False, "mpi4py is not installed: pip install 'tessera[mpi]'")


def test_without_nameless_memory_there_are_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    found = {name: (works, how) for name, _, works, how in usable()}
    assert not found["shared"][0]
    assert found["shared"][1].endswith("has no memory without a name; use mpi")
    assert found["mpi"][0]


def test_a_single_worker_needs_no_ranks() -> None:
    for name in TRANSPORTS:
        assert open_transport(name, worker("inline", 1)).size == 1
    with pytest.raises(TesseraError, match="unknown transport"):
        open_transport("tcp", worker("inline", 1))


@pytest.mark.parametrize(
    ("name", "spawn", "says"),
    [
        ("auto", "processes", "not connected: got '2 workers of processes'; allowed: ranks of torchrun or mpiexec"),
        ("shared", "torchrun", "ranks of torchrun have no such transport: got 'shared'; allowed: auto, gloo; for"),
        ("gloo", "mpiexec", "allowed: auto, shared, mpi; for gloo, start them with torchrun"),
    ],
)
def test_what_these_ranks_do_not_have(name: str, spawn: Spawn, says: str) -> None:
    with pytest.raises(TesseraError, match=says):
        open_transport(name, worker(spawn, 2))


def test_they_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "transports", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in found] == list(TRANSPORTS)
    assert all(row["usable"] == "yes" for row in found)
    assert main(["list", "transports"]) == 0
    shown = capsys.readouterr().out
    assert "every border copied once" in shown
    assert "ranks of torchrun" in shown
