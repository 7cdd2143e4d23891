"""Validation: it passes where the cut is exact, whatever the window, and fails where a single strip is wrong."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.errors import TesseraError
from tessera.results.record import Case
from tessera.spatial.bench.problem import Problem
from tessera.spatial.cases import OVERLAPS
from tessera.spatial.validation.record import record_of
from tessera.spatial.validation.truth import Truth
from tessera.spatial.validation.validate import Verdict, validate
from tessera.transport.in_process import InProcessTransport, run_ranks
from tests.spatial.broken import Breaking

LAYOUTS = ("contiguous", "channels_last")


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """The ranks are threads already."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def verdicts(
    problem: Problem, wrap=lambda transport: transport, overlaps=OVERLAPS, layouts=LAYOUTS, seed: int | None = None
) -> list[Verdict]:
    seed = random.randrange(1 << 40) if seed is None else seed

    def one(transport: InProcessTransport) -> Verdict:
        return validate(problem, wrap(transport), overlaps=overlaps, layouts=layouts, rounds=3, seed=seed)

    return run_ranks(problem.parts, one)


@st.composite
def problems(draw):
    side = st.integers(1, 3)
    rows, cols = draw(side), draw(side)
    pairs = {name: [draw(st.integers(low, high)) for _ in range(2)] for name, low, high in WINDOW}
    params = {
        "image_size": [draw(st.integers(max(rows, 6), 14)), draw(st.integers(max(cols, 6), 14))],
        "batch_size": draw(st.integers(1, 2)),
        "in_channels": draw(st.integers(1, 3)),
        "out_channels": draw(st.integers(1, 3)),
        "num_spatial_parts": rows * cols,
        "slice_method": f"{rows}x{cols}",
        "padding_mode": draw(st.sampled_from(["zeros", "reflect", "replicate", "circular"])),
        "dtype": draw(st.sampled_from(["float32", "float64"])),
        **pairs,
    }
    try:
        return Problem.of(params)
    except TesseraError:  # a window that does not fit
        return Problem.of(params | {"kernel": 1, "dilation": 1})


WINDOW = (("kernel", 1, 5), ("stride", 1, 3), ("dilation", 1, 2), ("padding", 0, 3))


@settings(max_examples=25, deadline=None)
@given(problems())
def test_every_window_and_every_cut_is_exact(problem):
    for verdict in verdicts(problem):
        assert verdict.passed, f"{problem}: {verdict}"
        assert str(verdict) == f"Validation passed for rank: {verdict.rank}"
        assert verdict.errors["pixels"] == 0.0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_numbers_of_16_bits_are_exact_to_their_rounding(dtype):
    problem = a_problem(dtype=dtype)
    found = verdicts(problem)
    assert all(verdict.passed for verdict in found), found
    assert max(verdict.errors["output"] for verdict in found) > 0, "nothing was compared"


def a_problem(**more) -> Problem:
    params = {
        "image_size": 12,
        "in_channels": 2,
        "out_channels": 3,
        "num_spatial_parts": 3,
        "slice_method": "vertical",
        "kernel": 3,
        "padding": 1,
    }
    return Problem.of(params | more)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_single_wrong_strip_is_found_with_its_rank_its_box_and_how_far_off_it_is(layout):
    problem = a_problem()
    found = verdicts(problem, wrap=Breaking, overlaps=("none",), layouts=(layout,))
    assert [verdict.passed for verdict in found][1] is False
    fault = found[1].faults[0]
    move = problem.plan().workers[1].receives[0]
    assert (fault.what, fault.box, fault.off) == ("received pixels", move.placed, pytest.approx(1.0))
    assert fault.when == f"round 2, {layout}"
    line = str(found[1])
    assert line.startswith("Validation failed for rank: 1: received pixels of Box(0:1, 0:12, ")
    assert "off by 1 (round 2" in line
    assert {fault.what for fault in found[1].faults} >= {"received pixels", "output"}


@pytest.mark.parametrize("overlap", ["none", "split", "recompute"])
def test_a_wrong_strip_shows_in_the_output_in_every_overlap(overlap):
    found = verdicts(a_problem(), wrap=Breaking, overlaps=(overlap,), layouts=("contiguous",))
    assert any(fault.what == "output" and overlap in fault.when for fault in found[1].faults)


def near_zero(problem: Problem, count: int = 1) -> list[int]:
    """Seeds whose one bias has a gradient that happens to be near zero, in the first round."""
    small = (seed for seed in range(10**5) if abs(Truth.of(problem, seed).bias_gradient.item()) < 0.05)
    return list(itertools.islice(small, count))


def test_a_sum_that_happens_to_be_near_zero_is_no_fault():
    problem = a_problem(out_channels=1, dtype="bfloat16")
    for seed in near_zero(problem, 3):
        found = verdicts(problem, overlaps=("none",), layouts=("contiguous",), seed=seed)
        assert all(verdict.passed for verdict in found), found
        assert max(verdict.errors["bias gradient"] for verdict in found) > 0, "nothing was rounded"


def test_beside_it_a_wrong_strip_is_found_all_the_same():
    problem = a_problem(out_channels=1)
    (seed,) = near_zero(problem)
    found = verdicts(problem, wrap=Breaking, overlaps=("none",), layouts=("contiguous",), seed=seed)
    assert {fault.what for fault in found[1].faults} >= {"received pixels", "output", "weight gradient"}


def test_an_error_is_held_against_the_size_that_results_have_by_chance():
    """Many results show it themselves: their mean square is the sum of the squares of their terms."""
    truth = Truth.of(a_problem(in_channels=16, out_channels=64, image_size=24, padding_mode="circular"), 3)
    for name in ("output", "image_gradient", "weight_gradient"):
        seen = float(getattr(truth, name).square().mean().sqrt())
        assert getattr(truth.sizes, name) == pytest.approx(seen, rel=0.1), name
    assert truth.sizes.bias_gradient == pytest.approx(24, rel=0.1)


def test_ranks_with_other_pixels_and_weights_than_the_rest_cannot_pass():
    problem = a_problem(num_spatial_parts=2)

    def one(transport: InProcessTransport) -> Verdict:
        own = transport.rank
        return validate(problem, transport, overlaps=("none",), layouts=("contiguous",), rounds=3, seed=own)

    assert not any(verdict.passed for verdict in run_ranks(2, one))


def test_the_record_says_who_failed_and_keeps_every_line():
    case = Case(feature="halo", name="validate", params={"dtype": "float32", "num_spatial_parts": 3})
    good = record_of(case, verdicts(a_problem(), overlaps=("none",)), "in-process")
    assert (good.status, good.reason, good.metrics["failed_ranks"].value) == ("ok", "", 0)
    assert good.notes[:3] == tuple(f"Validation passed for rank: {rank}" for rank in range(3))
    bad = record_of(case, verdicts(a_problem(), wrap=Breaking, overlaps=("none",)), "in-process")
    assert bad.status == "failed"
    assert "Validation failed for rank: 1: received pixels" in bad.reason
    assert "Validation failed for rank: 0: weight gradient off by" in bad.reason, "it is summed over the ranks"
    assert bad.metrics["error_pixels"].value == pytest.approx(1.0)
