"""Cuts keep to the limit, and no other cut that does is better."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tessera.phased.network.cutting import OVERHEAD, UnitCost, cut

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


def price(costs, starts):
    total = 0.0
    for start, stop in zip(starts, [*starts[1:], len(costs)], strict=True):
        load = sum(unit.bytes for unit in costs[start:stop])
        compute = sum((unit.flops or 0) / 50 for unit in costs[start:stop])
        total += max(load, compute) + OVERHEAD + (load if start == 0 else 0)
    return total


def allowed(costs, starts, limit):
    spans = zip(starts, [*starts[1:], len(costs)], strict=True)
    return all(stop - start == 1 or sum(unit.bytes for unit in costs[start:stop]) <= limit for start, stop in spans)


@given(costs=costs, limit=st.integers(0, 20))
def test_no_other_cut_is_better(costs, limit):
    found = cut(costs, limit * UNIT, balance=50)
    assert found[0] == 0
    assert found == sorted(set(found))
    assert allowed(costs, found, limit * UNIT)
    inner = range(1, len(costs))
    every = ([0, *chosen] for count in range(len(costs)) for chosen in itertools.combinations(inner, count))
    best = min(price(costs, starts) for starts in every if allowed(costs, starts, limit * UNIT))
    assert price(costs, found) <= best * (1 + 1e-9)
