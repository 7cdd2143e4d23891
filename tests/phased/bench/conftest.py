"""Fixtures of the benchmark tests: a host without calibration, and a restored number of torch threads."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def isolate_host(tmp_path, monkeypatch):
    """Use an empty data directory (no calibration), and restore the number of torch threads after the test."""
    monkeypatch.setenv("TESSERA_HOME", str(tmp_path / "home"))
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
