"""Rounds of several callables, and the uncut convolution beside them: counts, order, and what is given back."""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest
import torch

from tessera.launch.worker import Worker
from tessera.measure.samples import Sampling
from tessera.measure.sync import ALONE
from tessera.spatial.bench.problem import Problem
from tessera.spatial.bench.rounds import gathered, sample_rounds
from tessera.spatial.bench.uncut import measure_uncut

LONE = Worker(rank=0, size=1, spawn="inline", cpus=(), threads=1, sync=ALONE)


def test_every_callable_is_called_once_a_round_in_an_order_that_changes():
    calls: list[str] = []
    functions = {name: lambda name=name: calls.append(name) for name in "abc"}
    found = sample_rounds(functions, Sampling(warmup=2, iterations=30), LONE)
    assert Counter(calls) == dict.fromkeys("abc", 32)
    rounds = [tuple(calls[at : at + 3]) for at in range(0, len(calls), 3)]
    assert all(set(one) == set("abc") for one in rounds)
    assert len(set(rounds)) > 1
    assert {name: (len(s.values), len(s.warmups)) for name, s in found.items()} == dict.fromkeys("abc", (30, 2))
    assert all(samples.loops == 1 and samples.stopped_by == "count" for samples in found.values())


def test_without_a_count_rounds_stop_at_the_target_or_the_budget():
    easy = sample_rounds({"a": lambda: sum(range(2000))}, Sampling(budget=5.0, target=0.9), LONE)["a"]
    assert easy.stopped_by == "target"
    assert len(easy.values) >= Sampling().min_samples
    uneven = {"a": lambda: sum(range(random.randrange(5000)))}
    hard = sample_rounds(uneven, Sampling(budget=0.05, target=1e-9), LONE)["a"]
    assert hard.stopped_by == "budget"
    assert len(hard.values) >= 3


def test_a_count_without_warm_ups_is_warmed_up_all_the_same():
    found = sample_rounds({"a": lambda: None}, Sampling(budget=0.05, iterations=4), LONE)["a"]
    assert len(found.values) == 4
    assert found.warmups


def test_a_lone_worker_has_nobody_to_ask():
    assert gathered(LONE, "value") == ["value"]


def test_the_uncut_convolution_gives_cores_and_threads_back():
    problem = Problem.of({"image_size": 8, "kernel": 3, "padding": 1, "num_spatial_parts": 1, "slice_method": "square"})
    before = os.sched_getaffinity(0), torch.get_num_threads()
    seen = []
    samples, notes = measure_uncut(
        LONE, problem, lambda: lambda: seen.append(torch.get_num_threads()), Sampling(warmup=0, iterations=3)
    )
    assert samples is not None
    assert len(samples.values) == 3
    assert set(seen) == {1}
    assert notes == ("uncut on 1 thread",)
    assert (os.sched_getaffinity(0), torch.get_num_threads()) == before


def test_an_image_that_does_not_fit_is_left_out_with_the_reason():
    params = {"image_size": 200_000, "in_channels": 64, "out_channels": 64, "kernel": 3, "padding": 1}
    problem = Problem.of({**params, "num_spatial_parts": 1, "slice_method": "square"})
    samples, (note,) = measure_uncut(LONE, problem, lambda: pytest.fail("computed"), Sampling())
    assert samples is None
    assert "GiB" in note
