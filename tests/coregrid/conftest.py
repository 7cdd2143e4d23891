"""Small cases on one thread: handing them to several takes longer than computing them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

Threads = Callable[[int], None]


@pytest.fixture(autouse=True)
def torch_threads() -> Iterator[Threads]:
    """One thread, or as many as a test asks for."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield torch.set_num_threads
    torch.set_num_threads(before)
