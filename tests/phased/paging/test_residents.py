"""Tests of resident phases: chosen by measured benefit, and of prefetching from one pass to the next."""

from __future__ import annotations

import random

import torch
from safetensors.torch import save_file
from torch import nn

from tessera.phased import PhasedModel
from tessera.phased.memory.budget import PhaseNeed, choose_resident
from tessera.phased.paging.explanation import MeasuredTimes
from tessera.phased.paging.residents import LoadComputeTimes, choose_by_benefit, simulate_pass


def make_needs(sizes):
    return [PhaseNeed(name=str(n), units=(str(n),), buffer=size, wide=0) for n, size in enumerate(sizes)]


def test_phases_whose_loads_are_not_hidden_become_resident():
    times = [LoadComputeTimes(load=1, compute=10)] * 8 + [LoadComputeTimes(load=40, compute=1)] * 4
    needs = make_needs([10] * 12)
    chosen = choose_by_benefit(needs, times, 40, 2)
    assert chosen == (8, 9, 10, 11)
    assert simulate_pass(times, chosen, 2) < 0.9 * simulate_pass(times, choose_resident(needs, 40), 2)


def test_equal_phases_stay_evenly_spread_and_the_choice_is_never_worse():
    needs = make_needs([10] * 12)
    equal = [LoadComputeTimes(load=5, compute=1)] * 12
    assert choose_by_benefit(needs, equal, 40, 2) == choose_resident(needs, 40)
    seed = random.randrange(1 << 30)
    print("seed", seed)
    draw = random.Random(seed)
    for _ in range(50):
        sizes = [draw.randint(1, 30) for _ in range(draw.randint(2, 20))]
        times = [LoadComputeTimes(load=draw.random(), compute=draw.random()) for _ in sizes]
        free, buffers = draw.randint(0, sum(sizes)), draw.choice((1, 2, 3))
        needs = make_needs(sizes)
        chosen = choose_by_benefit(needs, times, free, buffers)
        assert sum(needs[index].resident for index in chosen) <= free
        spread = simulate_pass(times, choose_resident(needs, free), buffers)
        assert simulate_pass(times, chosen, buffers) <= spread


def test_measured_times_decide_which_phases_stay(monkeypatch):
    """Real passes; the times are given, because those of a shared machine vary."""
    network, x = nn.Sequential(*(nn.Linear(128, 128) for _ in range(12))).eval(), torch.randn(3, 128)
    times = [LoadComputeTimes(load=1, compute=10)] * 8 + [LoadComputeTimes(load=40, compute=1)] * 4
    layer = 4 * 128 * 129 + 8192
    options = {"budget": 6 * layer, "threads": 1, "phases": [str(number) for number in range(12)]}
    with torch.no_grad(), PhasedModel(network, **options) as phased:
        monkeypatch.setattr(MeasuredTimes, "build_phase_times", lambda self, phases: times)
        expected = network(x)
        before = [phase.index for phase in phased.phases if phase.resident]
        for _ in range(6):
            torch.testing.assert_close(phased(x), expected)
        after = [phase.index for phase in phased.phases if phase.resident]
        assert sum(index >= 8 for index in after) > sum(index >= 8 for index in before)
        assert phased.working_bytes <= 6 * layer
        assert phased._pager.counts.passes == 6


def test_load_times_of_resident_phases_follow_from_the_measured_rate():
    network, x = nn.Sequential(*(nn.Linear(128, 128) for _ in range(12))).eval(), torch.randn(3, 128)
    with torch.no_grad(), PhasedModel(network, budget=6 * (4 * 128 * 129 + 8192)) as phased:
        for _ in range(2):
            phased(x)
        times = phased._times.build_phase_times(phased.phases)
        assert times is not None
        assert all(time.load > 0 for time in times)
        assert any(phase.resident for phase in phased.phases)


def test_the_end_of_a_pass_loads_the_first_phases_of_the_next_pass():
    network, x = nn.Sequential(*(nn.Linear(256, 256) for _ in range(8))).eval(), torch.randn(2, 256)
    layer = 4 * 256 * 257 + 8192
    with torch.no_grad(), PhasedModel(network, budget=2 * layer, keep=True, threads=1) as phased:
        for number in range(5):
            phased(x)
            assert phased._pager.phases[0].block is not None or phased._pager.phases[0].resident, number
        streamed = sum(not phase.resident for phase in phased.phases)
        before = phased._pager.counts.loads
        phased(x)
        assert phased._pager.counts.loads - before == streamed  # each phase once, none twice
        assert phased.misses == 0


def test_weights_that_are_neighbours_in_the_file_are_read_together(tmp_path):
    network = nn.Sequential(*(nn.Linear(64, 64) for _ in range(6))).eval()
    state = network.state_dict()
    # safetensors sorts by dtype and name: all biases of a layer before its weight, in another order than the use
    save_file({name: state[name] for name in reversed(state)}, tmp_path / "w.safetensors")
    with PhasedModel.from_pretrained(tmp_path / "w.safetensors", model=lambda: network, phases=["0", "3"]) as phased:
        for layout in phased.plan.layouts:
            assert len(layout.places) == 6
            assert len(layout.runs) == 1
