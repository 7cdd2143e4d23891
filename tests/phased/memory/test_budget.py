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
from tessera.phased.choices import SCHEDULES, STORES
from tessera.phased.memory.budget import PhaseNeed
from tessera.phased.paging.phasing import divide_memory
from tessera.phased.plan import PhasingRequest

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


def request(schedule: str, budget: int, *, devices: int = 1, keep: bool = False) -> PhasingRequest:
    store = STORES["disk"]
    return PhasingRequest(schedule=SCHEDULES[schedule], store=store, devices=devices, cores=1, budget=budget, keep=keep)


@given(
    needs=needs,
    schedule=st.sampled_from(STREAMING),
    devices=st.integers(1, 3),
    pages=st.integers(1, 400),
    keep=st.booleans(),
)
def test_the_divided_memory_fits_into_the_budget(needs, schedule, devices, pages, keep):
    budget, asked = 4096 * pages, request(schedule, 4096 * pages, devices=devices, keep=keep)
    keep = keep and SCHEDULES[schedule].keeps_phases
    wide = max(need.wide for need in needs)
    fits = max(need.buffer for need in needs) + wide <= budget
    everything = keep and sum(need.resident for need in needs) + max(n.buffer if n.wide else 0 for n in needs) <= budget
    if not fits and not everything:
        with pytest.raises(TesseraError, match="does not fit into the budget"):
            divide_memory(needs, asked, 0)
        return
    shares = divide_memory(needs, asked, 0)
    assert shares.nbytes <= budget
    streamed = [need for index, need in enumerate(needs) if index not in shares.resident]
    assert shares.resident_bytes == sum(needs[index].resident for index in shares.resident)
    assert all(need.buffer <= shares.stream and need.wide <= shares.converted for need in streamed)
    if not keep:
        assert shares.resident == ()
    # less than twice the bytes of the streamed phases is left free
    assert not keep or not streamed or budget - shares.nbytes < 2 * sum(need.resident for need in streamed)


def test_resident_phases_are_spread_over_the_network():
    needs = [PhaseNeed(name="p", units=("p",), buffer=4096, wide=0)] * 12
    shares = divide_memory(needs, request("overlapped", 4096 * (3 + 4), keep=True), 0)
    assert shares.regions == 3
    assert len(shares.resident) == 4
    assert max(after - before for before, after in itertools.pairwise(shares.resident)) <= 3


@pytest.mark.parametrize("schedule", HOLDING_ALL_WEIGHTS)
def test_schedules_with_resident_weights_have_no_budget(schedule):
    needs = [PhaseNeed(name="p", units=("p",), buffer=4096, wide=0)] * 3
    assert divide_memory(needs, request(schedule, 1, devices=2), 0).resident == (0, 1, 2)


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
    with pytest.raises(TesseraError, match=r"raise the budget to 57344 bytes or more \(65536 to load ahead\)"):
        divide_memory(needs, request("overlapped", 50000), 0)
    assert divide_memory(needs, request("overlapped", 57344), 0).nbytes <= 57344
    assert divide_memory(needs, request("overlapped", 65536), 0).stream == 40960 + 8192
