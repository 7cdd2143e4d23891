"""Tests of the events of a pass: the device that loads and the device that computes each phase."""

from __future__ import annotations

import pytest
import torch

from tessera.phased import MatrixChain, PhasedModel

SIZE, LAYERS = 16, 5
NAMES = [f"layers.{number}" for number in range(LAYERS)]


def run_passes(schedule, count=1, devices=None, batches=1):
    model = MatrixChain(SIZE, LAYERS)
    budget = PhasedModel.compute_min_budget(model, schedule=schedule, devices=devices)
    x = torch.randn(2, SIZE, SIZE)
    with PhasedModel(
        model, schedule=schedule, devices=devices, budget=budget, phases=NAMES, keep=False, threads=1
    ) as phased:
        passes = []
        for _ in range(count):
            phased.run([x] * batches)
            passes.append(phased.events)
        return passes


def list_devices(events, kind):
    return [(event.phase, event.device) for event in events if event.kind == kind]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("devices", [1, 2, 3])
def test_phased_devices_take_turns_over_all_passes(devices):
    for number, events in enumerate(run_passes("phased", 3, devices)):
        turns = [(phase, (number * LAYERS + phase) % devices) for phase in range(LAYERS)]
        assert list_devices(events, "compute") == turns
        assert sorted(list_devices(events, "load")) == turns
        assert sorted(list_devices(events, "hand-over")) == turns


@pytest.mark.timeout(60)
@pytest.mark.parametrize("schedule", ["sequential", "overlapped"])
def test_one_device_loads_and_computes_each_phase_once(schedule):
    for events in run_passes(schedule, 2):
        assert list_devices(events, "compute") == [(phase, 0) for phase in range(LAYERS)]
        assert sorted(list_devices(events, "load")) == [(phase, 0) for phase in range(LAYERS)]
        loaded = {event.phase: event.stop for event in events if event.kind == "load"}
        assert all(event.start >= loaded[event.phase] for event in events if event.kind == "compute")
        assert all(event.bytes == 4 * SIZE * SIZE for event in events if event.kind == "load")


@pytest.mark.timeout(60)
def test_data_parallel_devices_compute_all_phases_from_one_stream():
    for batches in (1, 2):
        *_, events = run_passes("data-parallel", 3, batches=batches)  # the first passes check independence
        assert sorted(list_devices(events, "compute")) == [
            (phase, device) for phase in range(LAYERS) for device in (0, 1)
        ]
        assert sorted(list_devices(events, "load")) == [(phase, 0) for phase in range(LAYERS)]


@pytest.mark.timeout(60)
def test_sharded_phases_stay_on_their_device():
    *_, events = run_passes("sharded", 2, batches=3)  # the first pass checks whether the network has state
    assert sorted(list_devices(events, "compute")) == sorted([(phase, phase % 2) for phase in range(LAYERS)] * 3)
    assert {event.kind for event in events} == {"compute"}
