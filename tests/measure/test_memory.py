"""Memory: torch's own count is exact, the kernel's is in pages."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.measure.memory import allocated, resident_growth


@given(st.integers(1, 300), st.integers(1, 300))
@settings(max_examples=10, deadline=None)
def test_allocated_bytes_are_exact(rows, cols):
    x = torch.randn(rows, cols)
    found = allocated(lambda: (x + x) * x)
    one = rows * cols * 4
    assert found.total == 2 * one
    assert found.peak == 2 * one
    assert found.by_operator == {"aten::add": one, "aten::mul": one}


def test_the_peak_is_what_was_held_at_once():
    x = torch.randn(1000)

    def chain():
        y = x + x
        for _ in range(10):
            y = y * x
        return y

    found = allocated(chain)
    assert found.total == 11 * 4000
    assert found.peak == 2 * 4000


def test_resident_growth_sees_what_torch_does_not():
    size = 64 * 2**20
    grown = resident_growth(lambda: bytearray(size))
    assert grown is None or 0.9 * size < grown < 1.5 * size
    still = resident_growth(lambda: None)
    assert still is None or still < 2**22
