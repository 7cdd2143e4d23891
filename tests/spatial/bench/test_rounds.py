"""Tests of interleaved timing and of the unsplit baseline: counts, order, and restored settings."""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest
import torch

from tessera.launch.worker import Worker
from tessera.measure.samples import Sampling
from tessera.measure.sync import SINGLE_RANK
from tessera.spatial.bench.rounds import gather_values, sample_rounds
from tessera.spatial.bench.unsplit import measure_unsplit
from tessera.spatial.problem import HaloProblem

SINGLE_WORKER = Worker(rank=0, size=1, spawn="inline", cpus=(), threads=1, sync=SINGLE_RANK)


def test_every_callable_is_called_once_per_round_in_random_order():
    calls: list[str] = []
    functions = {name: lambda name=name: calls.append(name) for name in "abc"}
    samples_by_name = sample_rounds(functions, Sampling(warmup=2, iterations=30), SINGLE_WORKER)
    assert Counter(calls) == dict.fromkeys("abc", 32)
    rounds = [tuple(calls[at : at + 3]) for at in range(0, len(calls), 3)]
    assert all(set(names) == set("abc") for names in rounds)
    assert len(set(rounds)) > 1
    assert {name: (len(s.values), len(s.warmups)) for name, s in samples_by_name.items()} == dict.fromkeys(
        "abc", (30, 2)
    )
    assert all(samples.loops == 1 and samples.stopped_by == "count" for samples in samples_by_name.values())


def test_without_a_count_rounds_stop_at_the_target_or_the_budget():
    easy = sample_rounds({"a": lambda: sum(range(2000))}, Sampling(budget=5.0, target=0.9), SINGLE_WORKER)["a"]
    assert easy.stopped_by == "target"
    assert len(easy.values) >= Sampling().min_samples
    uneven = {"a": lambda: sum(range(random.randrange(5000)))}
    hard = sample_rounds(uneven, Sampling(budget=0.05, target=1e-9), SINGLE_WORKER)["a"]
    assert hard.stopped_by == "budget"
    assert len(hard.values) >= 3


def test_a_fixed_count_is_warmed_up_by_default():
    samples = sample_rounds({"a": lambda: None}, Sampling(budget=0.05, iterations=4), SINGLE_WORKER)["a"]
    assert len(samples.values) == 4
    assert samples.warmups


def test_gathering_from_a_single_worker():
    assert gather_values(SINGLE_WORKER, "value") == ["value"]


def test_the_unsplit_convolution_restores_cores_and_threads():
    problem = HaloProblem.of(
        {"image_size": 8, "kernel": 3, "padding": 1, "num_spatial_parts": 1, "slice_method": "square"}
    )
    before = os.sched_getaffinity(0), torch.get_num_threads()
    thread_counts = []
    samples, notes = measure_unsplit(
        SINGLE_WORKER,
        problem.footprint,
        lambda: lambda: thread_counts.append(torch.get_num_threads()),
        Sampling(warmup=0, iterations=3),
    )
    assert samples is not None
    assert len(samples.values) == 3
    assert set(thread_counts) == {1}
    assert notes == ("unsplit on 1 thread",)
    assert (os.sched_getaffinity(0), torch.get_num_threads()) == before


def test_an_unsplit_image_that_does_not_fit_is_skipped_with_a_note():
    params = {"image_size": 200_000, "in_channels": 64, "out_channels": 64, "kernel": 3, "padding": 1}
    problem = HaloProblem.of({**params, "num_spatial_parts": 1, "slice_method": "square"})
    samples, (note,) = measure_unsplit(SINGLE_WORKER, problem.footprint, lambda: pytest.fail("computed"), Sampling())
    assert samples is None
    assert "GiB" in note
