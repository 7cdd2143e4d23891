"""Fixtures of the store tests: the spool is in a temporary directory, and one PostgreSQL server serves all tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.results.postgres_server import PostgresServer, start_server


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with start_server() as server:
        yield server


@pytest.fixture(autouse=True)
def data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TESSERA_HOME", str(tmp_path / "home"))
    return tmp_path / "home"
