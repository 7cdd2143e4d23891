"""Fixtures of the command tests: every test has its own working directory, store and data home."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def work_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a new working directory, with the default store and an empty data home."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TESSERA_STORE", raising=False)
    monkeypatch.setenv("TESSERA_HOME", str(tmp_path / "home"))
    return tmp_path
