"""Tests of activations: values, strides and dtypes are preserved in memory and through the scratch file."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.phased.memory.activations import Activations, ScratchSpace, is_dense

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
def test_values_are_restored_with_any_limit(drawn, limit, phases):
    scratch = ScratchSpace(limit)
    activations = Activations(scratch)
    activations.begin_step([{} for _ in drawn])
    for _ in range(phases):
        given_values = [{f"{n}": make() for n, make in enumerate(makers)} | {"size": 3} for makers in drawn]
        for batch, values in enumerate(given_values):
            activations.take(batch)
            activations.put(batch, dict(values))
        assert limit is None or activations.nbytes <= limit
    for restored, values in zip(activations.end(), given_values, strict=True):
        assert restored.keys() == values.keys()
        for name, value in values.items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(restored[name], value)
                assert restored[name].dtype == value.dtype
                assert not is_dense(value) or value.numel() == 0 or restored[name].stride() == value.stride()
            else:
                assert restored[name] == value
    assert (scratch.streamed_bytes > 0) <= (limit is not None)


def test_values_still_share_memory():
    scratch = ScratchSpace(0)
    activations = Activations(scratch)
    activations.begin_step([{}])
    value = torch.zeros(4)
    activations.put(0, {"one": value, "view": value[:2]})
    restored = activations.take(0)
    restored["view"] += 1
    assert restored["one"].tolist() == [1, 1, 0, 0]
    assert scratch.streamed_bytes == 0


def test_a_value_and_its_parts_in_a_structure_still_share_memory():
    activations = Activations(ScratchSpace(0))
    activations.begin_step([{}])
    value = torch.zeros(4)
    activations.put(0, {"one": value, "parts": value.chunk(2)})
    restored = activations.take(0)
    restored["one"] += 1
    assert restored["parts"][1].tolist() == [1, 1]
