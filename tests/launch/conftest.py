"""A temporary directory of one's own, so that what a launch leaves there can be seen."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def own_temp(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Short, because the paths of sockets are limited."""
    tmp_path_factory.getbasetemp()  # made at first use, and not in here
    with tempfile.TemporaryDirectory(prefix="t-") as made:
        monkeypatch.setenv("TMPDIR", made)
        monkeypatch.setattr(tempfile, "tempdir", made)
        yield Path(made)
