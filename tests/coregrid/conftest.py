"""Fixture of the core-grid tests: one torch thread, because small cases are slower on several threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

Threads = Callable[[int], None]


@pytest.fixture(autouse=True)
def torch_threads() -> Iterator[Threads]:
    """Set torch to one thread, or to the number of threads that the test requests."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield torch.set_num_threads
    torch.set_num_threads(before)
