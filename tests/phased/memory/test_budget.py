"""A budget is never exceeded, whatever the phases; and it is never refused when it would do."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

from tessera.errors import TesseraError
from tessera.phased import PhasedModel
from tessera.phased.choices import HOLD_ALL, SCHEDULES
from tessera.phased.memory.budget import Need, buffers_for, divide

STREAMING = [name for name in SCHEDULES if name not in HOLD_ALL]
needs = st.lists(
    st.builds(
        lambda pages, widened: Need(name="p", units=("p",), buffer=4096 * pages, wide=8192 * pages * widened),
        st.integers(1, 20),
        st.sampled_from([0, 0, 1]),
    ),
    min_size=1,
    max_size=12,
)


@given(
    needs=needs,
    schedule=st.sampled_from(STREAMING),
    devices=st.integers(1, 3),
    pages=st.integers(1, 400),
    keep=st.booleans(),
)
def test_the_parts_fit_the_budget(needs, schedule, devices, pages, keep):
    budget, (least, most) = 4096 * pages, buffers_for(schedule, devices)
    wide = max(need.wide for need in needs)
    must = min(least, len(needs)) if schedule != "phased" else least
    fits = must * max(need.buffer for need in needs) + wide <= budget
    everything = keep and sum(need.resident for need in needs) + max(n.buffer if n.wide else 0 for n in needs) <= budget
    if not fits and not everything:
        with pytest.raises(TesseraError, match="does not fit the budget"):
            divide(needs, schedule, devices, budget, areas=1, keep=keep)
        return
    found = divide(needs, schedule, devices, budget, areas=1, keep=keep)
    assert found.nbytes <= budget
    streamed = [need for index, need in enumerate(needs) if index not in found.resident]
    assert found.resident_bytes == sum(needs[index].resident for index in found.resident)
    assert all(need.buffer <= found.buffer and need.wide <= found.wide for need in streamed)
    if streamed:
        assert fits
        assert min(must, len(streamed)) <= found.buffers <= most
    if not keep:
        assert found.resident == ()
    # nobody is left out who would have fitted into half of what is free
    assert not keep or not streamed or budget - found.nbytes < 2 * sum(need.resident for need in streamed)


def test_what_stays_is_spread_over_the_network():
    needs = [Need(name="p", units=("p",), buffer=4096, wide=0)] * 12
    found = divide(needs, "overlapped", 1, 4096 * (3 + 4), areas=1, keep=True)
    assert found.buffers == 3
    assert len(found.resident) == 4
    assert max(after - before for before, after in itertools.pairwise(found.resident)) <= 3


@pytest.mark.parametrize("schedule", HOLD_ALL)
def test_schedules_that_hold_all_have_no_budget(schedule):
    found = divide([Need(name="p", units=("p",), buffer=4096, wide=0)] * 3, schedule, 2, 1, areas=1, keep=False)
    assert found.resident == (0, 1, 2)


@given(
    layers=st.lists(
        st.tuples(st.sampled_from([8, 64, 200]), st.sampled_from(["float32", "float16"])), min_size=2, max_size=8
    ),
    schedule=st.sampled_from(STREAMING),
)
@settings(max_examples=40, deadline=None)
def test_the_least_budget_of_a_file_of_mixed_dtypes_will_do(layers, schedule, tmp_path_factory):
    """Layers that are widened are not put together where one that is not is the largest."""
    path = tmp_path_factory.mktemp("mixed") / "w.safetensors"
    sizes = [layers[0][0], *(size for size, _ in layers)]
    model = nn.Sequential(*(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))).eval()
    kinds = {str(number): getattr(torch, dtype) for number, (_, dtype) in enumerate(layers)}
    state = {name: value.to(kinds[name.partition(".")[0]]) for name, value in model.state_dict().items()}
    save_file(state, path)
    model.load_state_dict({name: value.float() for name, value in state.items()})
    with torch.device("meta"):
        bare = nn.Sequential(*(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))).eval()
    least = PhasedModel.least_budget(bare, schedule=schedule, path=path)
    x = torch.randn(3, sizes[0])
    with torch.no_grad(), PhasedModel(bare, schedule=schedule, budget=least, path=path) as phased:
        torch.testing.assert_close(phased(x), model(x))


def test_advice_that_is_followed_is_not_given_again():
    needs = [Need(name="a", units=("a",), buffer=40960, wide=0), Need(name="b", units=("b",), buffer=8192, wide=16384)]
    with pytest.raises(TesseraError, match="raise the budget to 98304 bytes"):
        divide(needs, "overlapped", 1, 90000, areas=1, keep=False)
    assert divide(needs, "overlapped", 1, 98304, areas=1, keep=False).nbytes <= 98304
