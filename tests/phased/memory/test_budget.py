"""Tests of budget division: a budget is never exceeded, and never refused if it is large enough."""

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
from tessera.phased.choices import SCHEDULES
from tessera.phased.memory.budget import PhaseNeed, divide_budget

STREAMING = [name for name, traits in SCHEDULES.items() if not traits.holds_all_weights]
HOLDING_ALL_WEIGHTS = [name for name, traits in SCHEDULES.items() if traits.holds_all_weights]
needs = st.lists(
    st.builds(
        lambda pages, widened: PhaseNeed(name="p", units=("p",), buffer=4096 * pages, wide=8192 * pages * widened),
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
def test_the_divided_memory_fits_into_the_budget(needs, schedule, devices, pages, keep):
    traits = SCHEDULES[schedule]
    budget, (least, most) = 4096 * pages, traits.count_buffers(devices)
    wide = max(need.wide for need in needs)
    must = min(least, len(needs)) if schedule != "phased" else least
    fits = must * max(need.buffer for need in needs) + wide <= budget
    everything = keep and sum(need.resident for need in needs) + max(n.buffer if n.wide else 0 for n in needs) <= budget
    if not fits and not everything:
        with pytest.raises(TesseraError, match="does not fit into the budget"):
            divide_budget(needs, traits, devices, budget, areas=1, keep=keep)
        return
    division = divide_budget(needs, traits, devices, budget, areas=1, keep=keep)
    assert division.nbytes <= budget
    streamed = [need for index, need in enumerate(needs) if index not in division.resident]
    assert division.resident_bytes == sum(needs[index].resident for index in division.resident)
    assert all(need.buffer <= division.buffer and need.wide <= division.wide for need in streamed)
    if streamed:
        assert fits
        assert min(must, len(streamed)) <= division.buffers <= most
    if not keep:
        assert division.resident == ()
    # less than twice the bytes of the streamed phases is left free
    assert not keep or not streamed or budget - division.nbytes < 2 * sum(need.resident for need in streamed)


def test_resident_phases_are_spread_over_the_network():
    needs = [PhaseNeed(name="p", units=("p",), buffer=4096, wide=0)] * 12
    division = divide_budget(needs, SCHEDULES["overlapped"], 1, 4096 * (3 + 4), areas=1, keep=True)
    assert division.buffers == 3
    assert len(division.resident) == 4
    assert max(after - before for before, after in itertools.pairwise(division.resident)) <= 3


@pytest.mark.parametrize("schedule", HOLDING_ALL_WEIGHTS)
def test_schedules_with_resident_weights_have_no_budget(schedule):
    division = divide_budget(
        [PhaseNeed(name="p", units=("p",), buffer=4096, wide=0)] * 3, SCHEDULES[schedule], 2, 1, areas=1, keep=False
    )
    assert division.resident == (0, 1, 2)


@given(
    layers=st.lists(
        st.tuples(st.sampled_from([8, 64, 200]), st.sampled_from(["float32", "float16"])), min_size=2, max_size=8
    ),
    schedule=st.sampled_from(STREAMING),
)
@settings(max_examples=40, deadline=None)
def test_the_minimum_budget_suffices_for_a_file_of_mixed_dtypes(layers, schedule, tmp_path_factory):
    """Widened layers must not share a phase if the largest layer is not widened."""
    path = tmp_path_factory.mktemp("mixed") / "w.safetensors"
    sizes = [layers[0][0], *(size for size, _ in layers)]
    model = nn.Sequential(*(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))).eval()
    kinds = {str(number): getattr(torch, dtype) for number, (_, dtype) in enumerate(layers)}
    state = {name: value.to(kinds[name.partition(".")[0]]) for name, value in model.state_dict().items()}
    save_file(state, path)
    model.load_state_dict({name: value.float() for name, value in state.items()})
    with torch.device("meta"):
        bare = nn.Sequential(*(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))).eval()
    least = PhasedModel.compute_min_budget(bare, schedule=schedule, path=path)
    x = torch.randn(3, sizes[0])
    with torch.no_grad(), PhasedModel(bare, schedule=schedule, budget=least, path=path) as phased:
        torch.testing.assert_close(phased(x), model(x))


def test_the_budget_named_in_the_error_suffices():
    needs = [
        PhaseNeed(name="a", units=("a",), buffer=40960, wide=0),
        PhaseNeed(name="b", units=("b",), buffer=8192, wide=16384),
    ]
    with pytest.raises(TesseraError, match="raise the budget to 98304 bytes"):
        divide_budget(needs, SCHEDULES["overlapped"], 1, 90000, areas=1, keep=False)
    assert divide_budget(needs, SCHEDULES["overlapped"], 1, 98304, areas=1, keep=False).nbytes <= 98304
