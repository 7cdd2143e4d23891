"""Every command runs in a directory, a store and a data home of its own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that a command is typed in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TESSERA_STORE", raising=False)
    monkeypatch.setenv("TESSERA_HOME", str(tmp_path / "home"))
    return tmp_path
