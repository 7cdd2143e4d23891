"""Tests of choosing phases: they respect the size limit, and no other choice within the limit costs less."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tessera.phased.paging.phase_starts import PHASE_OVERHEAD_BYTES, UnitCost, choose_phase_starts

UNIT = 1 << 20
costs = st.lists(
    st.builds(
        lambda load, compute: UnitCost(bytes=load * UNIT, flops=compute and 50 * compute * UNIT),
        st.integers(0, 6),
        st.integers(0, 6),
    ),
    min_size=1,
    max_size=9,
)


def compute_cost(costs, starts):
    total = 0.0
    for start, stop in zip(starts, [*starts[1:], len(costs)], strict=True):
        load = sum(unit.bytes for unit in costs[start:stop])
        compute = sum((unit.flops or 0) / 50 for unit in costs[start:stop])
        total += max(load, compute) + PHASE_OVERHEAD_BYTES + (load if start == 0 else 0)
    return total


def is_allowed(costs, starts, limit):
    spans = zip(starts, [*starts[1:], len(costs)], strict=True)
    return all(stop - start == 1 or sum(unit.bytes for unit in costs[start:stop]) <= limit for start, stop in spans)


@given(costs=costs, limit=st.integers(0, 20))
def test_the_chosen_phases_are_optimal(costs, limit):
    starts = choose_phase_starts(costs, limit * UNIT, balance=50)
    assert starts[0] == 0
    assert starts == sorted(set(starts))
    assert is_allowed(costs, starts, limit * UNIT)
    inner = range(1, len(costs))
    every = ([0, *chosen] for count in range(len(costs)) for chosen in itertools.combinations(inner, count))
    best = min(compute_cost(costs, starts) for starts in every if is_allowed(costs, starts, limit * UNIT))
    assert compute_cost(costs, starts) <= best * (1 + 1e-9)
