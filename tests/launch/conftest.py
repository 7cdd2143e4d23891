"""Fixture of the launch tests: an empty temporary directory, which shows the files that a launch leaves behind."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def own_temp(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Use a new temporary directory with a short path, because socket paths are limited in length."""
    tmp_path_factory.getbasetemp()  # create pytest's own directory elsewhere
    with tempfile.TemporaryDirectory(prefix="t-") as directory:
        monkeypatch.setenv("TMPDIR", directory)
        monkeypatch.setattr(tempfile, "tempdir", directory)
        yield Path(directory)
