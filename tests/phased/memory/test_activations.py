"""Values come back as they were put, in memory or through the scratch file: values, strides and dtypes."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.phased.memory.activations import Activations, Scratch, is_dense

TENSORS = [
    lambda: torch.randn(3, 4),
    lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    lambda: torch.randn(6, 4).t(),
    lambda: torch.randn(8, 8)[::2, 1:],
    lambda: torch.randn(3, 1).expand(3, 4),
    lambda: torch.randn(4).bfloat16(),
    lambda: torch.randint(9, (5,)),
    lambda: torch.empty(0, 3),
    lambda: torch.tensor(3.5),
]


@settings(max_examples=60, deadline=None)
@given(
    drawn=st.lists(st.lists(st.sampled_from(TENSORS), max_size=4), min_size=1, max_size=4),
    limit=st.sampled_from([None, 0, 50, 500]),
    phases=st.integers(1, 3),
)
def test_values_survive_any_limit(drawn, limit, phases):
    scratch = Scratch(limit)
    activations = Activations(scratch)
    activations.begin([{} for _ in drawn])
    for _ in range(phases):
        given_values = [{f"{n}": make() for n, make in enumerate(makers)} | {"size": 3} for makers in drawn]
        for batch, values in enumerate(given_values):
            activations.take(batch)
            activations.put(batch, dict(values))
        assert limit is None or activations.nbytes <= limit
    for found, values in zip(activations.end(), given_values, strict=True):
        assert found.keys() == values.keys()
        for name, value in values.items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(found[name], value)
                assert found[name].dtype == value.dtype
                assert not is_dense(value) or value.numel() == 0 or found[name].stride() == value.stride()
            else:
                assert found[name] == value
    assert (scratch.streamed_bytes > 0) <= (limit is not None)


def test_values_that_share_memory_stay_together():
    scratch = Scratch(0)
    activations = Activations(scratch)
    activations.begin([{}])
    one = torch.zeros(4)
    activations.put(0, {"one": one, "view": one[:2]})
    found = activations.take(0)
    found["view"] += 1
    assert found["one"].tolist() == [1, 1, 0, 0]
    assert scratch.streamed_bytes == 0


def test_a_value_stays_with_the_parts_of_it_in_a_structure():
    activations = Activations(Scratch(0))
    activations.begin([{}])
    one = torch.zeros(4)
    activations.put(0, {"one": one, "parts": one.chunk(2)})
    found = activations.take(0)
    found["one"] += 1
    assert found["parts"][1].tolist() == [1, 1]
