"""Tests of memory measurement: exact allocations of torch, and resident memory in pages."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.measure.memory import count_allocations, measure_resident_growth


@given(st.integers(1, 300), st.integers(1, 300))
@settings(max_examples=10, deadline=None)
def test_allocated_bytes_are_exact(rows, cols):
    x = torch.randn(rows, cols)
    allocations = count_allocations(lambda: (x + x) * x)
    size = rows * cols * 4
    assert allocations.total == 2 * size
    assert allocations.peak == 2 * size
    assert allocations.by_operator == {"aten::add": size, "aten::mul": size}


def test_the_peak_counts_memory_held_at_the_same_time():
    x = torch.randn(1000)

    def multiply_often():
        y = x + x
        for _ in range(10):
            y = y * x
        return y

    allocations = count_allocations(multiply_often)
    assert allocations.total == 11 * 4000
    assert allocations.peak == 2 * 4000


def test_resident_growth_counts_memory_outside_of_torch():
    size = 64 * 2**20
    grown = measure_resident_growth(lambda: bytearray(size))
    assert grown is None or 0.9 * size < grown < 1.5 * size
    still = measure_resident_growth(lambda: None)
    assert still is None or still < 2**22
