"""Tests of the validation benchmark: it passes for every window and split, and fails if a single strip is wrong."""

from __future__ import annotations

import itertools
import random
from math import prod

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.errors import TesseraError
from tessera.results.record import Case
from tessera.spatial.bench.reference import ReferenceResult
from tessera.spatial.bench.validation import ValidationResult, build_validation_record, validate
from tessera.spatial.cases import OVERLAPS
from tessera.spatial.problem import HaloProblem
from tessera.transport.in_process import InProcessTransport, run_ranks
from tests.spatial.faulty_transport import FaultyTransport

LAYOUTS = ("contiguous", "channels_last")


@pytest.fixture(autouse=True, scope="module")
def use_one_thread():
    """Use one torch thread, because the ranks are threads already."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def validate_on_ranks(
    problem: HaloProblem, wrap=lambda transport: transport, overlaps=OVERLAPS, layouts=LAYOUTS, seed: int | None = None
) -> list[ValidationResult]:
    seed = random.randrange(1 << 40) if seed is None else seed

    def validate_rank(transport: InProcessTransport) -> ValidationResult:
        return validate(problem, wrap(transport), overlaps=overlaps, layouts=layouts, rounds=3, seed=seed)

    return run_ranks(problem.parts, validate_rank)


@st.composite
def draw_problems(draw):
    counts = draw(st.sampled_from([(1, 1), (1, 2), (2, 2), (3, 1), (2, 3), (3, 3), (2, 1, 2), (1, 2, 2), (3, 1, 1)]))
    dims = len(counts)
    sizes = {name: [draw(st.integers(low, high)) for _ in range(dims)] for name, low, high in WINDOW}
    params = {
        "image_size": [draw(st.integers(6, 14 if dims == 2 else 8)) for _ in counts],
        "batch_size": draw(st.integers(1, 2)),
        "in_channels": draw(st.integers(1, 3)),
        "out_channels": draw(st.integers(1, 3)),
        "num_spatial_parts": prod(counts),
        "slice_method": "x".join(map(str, counts)),
        "padding_mode": draw(st.sampled_from(["zeros", "reflect", "replicate", "circular"])),
        "dtype": draw(st.sampled_from(["float32", "float64"])),
        **sizes,
    }
    try:
        return HaloProblem.of(params)
    except TesseraError:  # a window that does not fit
        return HaloProblem.of(params | {"kernel": 1, "dilation": 1})


WINDOW = (("kernel", 1, 5), ("stride", 1, 3), ("dilation", 1, 2), ("padding", 0, 3))


@settings(max_examples=25, deadline=None)
@given(draw_problems())
def test_every_window_and_every_split_is_exact(problem):
    for verdict in validate_on_ranks(problem):
        assert verdict.passed, f"{problem}: {verdict}"
        assert str(verdict) == f"Validation passed for rank: {verdict.rank}"
        assert verdict.errors["pixels"] == 0.0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_numbers_of_16_bits_are_exact_to_their_rounding(dtype):
    problem = make_problem(dtype=dtype)
    verdicts = validate_on_ranks(problem)
    assert all(verdict.passed for verdict in verdicts), verdicts
    assert max(verdict.errors["output"] for verdict in verdicts) > 0, "nothing was compared"


def make_problem(**more) -> HaloProblem:
    params = {
        "image_size": 12,
        "in_channels": 2,
        "out_channels": 3,
        "num_spatial_parts": 3,
        "slice_method": "vertical",
        "kernel": 3,
        "padding": 1,
    }
    return HaloProblem.of(params | more)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_single_wrong_strip_is_reported_with_rank_box_and_error(layout):
    problem = make_problem()
    verdicts = validate_on_ranks(problem, wrap=FaultyTransport, overlaps=("none",), layouts=(layout,))
    assert [verdict.passed for verdict in verdicts][1] is False
    fault = verdicts[1].faults[0]
    move = problem.plan().workers[1].receives[0]
    assert (fault.result, fault.box, fault.error) == ("received pixels", move.target_box, pytest.approx(1.0))
    assert fault.when == f"round 2, {layout}"
    line = str(verdicts[1])
    assert line.startswith("Validation failed for rank: 1: received pixels of Box(0:1, 0:12, ")
    assert "off by 1 (round 2" in line
    assert {fault.result for fault in verdicts[1].faults} >= {"received pixels", "output"}


@pytest.mark.parametrize("overlap", ["none", "split", "recompute"])
def test_a_wrong_strip_shows_in_the_output_in_every_overlap(overlap):
    verdicts = validate_on_ranks(make_problem(), wrap=FaultyTransport, overlaps=(overlap,), layouts=("contiguous",))
    assert any(fault.result == "output" and overlap in fault.when for fault in verdicts[1].faults)


def find_seeds_near_zero(problem: HaloProblem, count: int = 1) -> list[int]:
    """Return `count` seeds for which the gradient of the only bias is near zero in the first round."""
    small = (seed for seed in range(10**5) if abs(ReferenceResult.of(problem, seed).bias_gradient.item()) < 0.05)
    return list(itertools.islice(small, count))


def test_a_sum_near_zero_by_chance_passes():
    problem = make_problem(out_channels=1, dtype="bfloat16")
    for seed in find_seeds_near_zero(problem, 3):
        verdicts = validate_on_ranks(problem, overlaps=("none",), layouts=("contiguous",), seed=seed)
        assert all(verdict.passed for verdict in verdicts), verdicts
        assert max(verdict.errors["bias gradient"] for verdict in verdicts) > 0, "nothing was rounded"


def test_a_wrong_strip_is_detected_with_a_sum_near_zero():
    problem = make_problem(out_channels=1)
    (seed,) = find_seeds_near_zero(problem)
    verdicts = validate_on_ranks(problem, wrap=FaultyTransport, overlaps=("none",), layouts=("contiguous",), seed=seed)
    assert {fault.result for fault in verdicts[1].faults} >= {"received pixels", "output", "weight gradient"}


def test_an_error_is_relative_to_the_scale_of_the_results():
    """Check that the scales are close to the root mean square of the results, if there are many results."""
    problem = make_problem(in_channels=16, out_channels=64, image_size=24, padding_mode="circular")
    reference = ReferenceResult.of(problem, 3)
    for name in ("output", "image_gradient", "weight_gradient"):
        scale = float(getattr(reference, name).square().mean().sqrt())
        assert getattr(reference.scales, name) == pytest.approx(scale, rel=0.1), name
    assert reference.scales.bias_gradient == pytest.approx(24, rel=0.1)


def test_ranks_with_different_seeds_fail():
    problem = make_problem(num_spatial_parts=2)

    def validate_rank(transport: InProcessTransport) -> ValidationResult:
        own = transport.rank
        return validate(problem, transport, overlaps=("none",), layouts=("contiguous",), rounds=3, seed=own)

    assert not any(verdict.passed for verdict in run_ranks(2, validate_rank))


def test_the_record_names_the_failed_ranks_and_keeps_every_line():
    case = Case(feature="halo", name="validate", params={"dtype": "float32", "num_spatial_parts": 3})
    good = build_validation_record(case, validate_on_ranks(make_problem(), overlaps=("none",)), "in-process")
    assert (good.status, good.reason, good.metrics["failed_ranks"].value) == ("ok", "", 0)
    texts = [verdict["text"] for verdict in good.details["rank_verdicts"]]
    assert texts == [f"Validation passed for rank: {rank}" for rank in range(3)]
    assert good.verdict == "passed"
    bad = build_validation_record(
        case, validate_on_ranks(make_problem(), wrap=FaultyTransport, overlaps=("none",)), "in-process"
    )
    assert (bad.status, bad.verdict) == ("failed", "failed")
    assert "Validation failed for rank: 1: received pixels" in bad.reason
    assert "Validation failed for rank: 0: weight gradient off by" in bad.reason, (
        "the weight gradient is summed over the ranks"
    )
    assert bad.metrics["error_pixels"].value == pytest.approx(1.0)
