"""Whatever is measured here finds a host that is not calibrated, and leaves torch as it was."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A data home of its own, and as many threads afterwards as before."""
    monkeypatch.setenv("TESSERA_HOME", str(tmp_path / "home"))
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
