"""Tests of outputs: they equal the outputs of the plain model for every schedule, budget, store and dtype."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

from tessera.models import build, build_layers
from tessera.phased import MatrixChain, PhasedModel
from tessera.phased.choices import SCHEDULES
from tests.phased.random_networks import as_tuple, draw_networks, use_one_thread

SLACK = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def run_plain(model: nn.Module, batches: list[torch.Tensor]) -> list[tuple[torch.Tensor, ...]]:
    with use_one_thread(), torch.no_grad():
        return [as_tuple(model(batch.clone())) for batch in batches]


def check_same(output, expected, exact: bool) -> None:
    for actual, reference in zip(as_tuple(output), expected, strict=True):
        if exact:
            assert torch.equal(actual, reference)
        else:
            torch.testing.assert_close(actual, reference, rtol=1e-4, atol=1e-5)


@pytest.mark.timeout(400)
@SLACK
@given(
    drawn=draw_networks(),
    schedule=st.sampled_from(list(SCHEDULES)),
    devices=st.integers(1, 3),
    room=st.floats(0, 1.2),
    batches=st.integers(1, 3),
    samples=st.integers(1, 5),
    keep=st.booleans(),
    store=st.sampled_from(["disk", "host", "mapped"]),
)
def test_random_networks_equal_torch_on_any_budget(drawn, schedule, devices, room, batches, samples, keep, store):
    model, width = drawn
    devices = devices if SCHEDULES[schedule].several_devices else 1
    given_batches = [torch.randn(samples, width) for _ in range(batches)]
    expected = run_plain(model, given_batches)
    least = PhasedModel.compute_min_budget(model, schedule=schedule, devices=devices)
    whole = sum(p.nbytes for p in model.parameters()) + 4096 * 40
    with PhasedModel(
        model,
        schedule=schedule,
        devices=devices,
        budget=max(least, int(room * whole)),
        keep=keep,
        store=store,
        threads=1,
    ) as phased:
        if not SCHEDULES[schedule].holds_all_weights:
            assert phased.working_bytes <= phased.budget
        for _ in range(2):  # the second pass checks phases that were loaded in advance
            outputs = phased.run([batch.clone() for batch in given_batches])  # networks may write to their inputs
            for output, expected_output in zip(outputs, expected, strict=True):
                check_same(output, expected_output, exact=schedule != "data-parallel")
        streamed = [phase.index for phase in phased.phases if not phase.resident]
        if not SCHEDULES[schedule].holds_all_weights and not keep:
            assert {e.phase for e in phased.events if e.kind == "load"} == set(streamed)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_outputs_equal_torch_for_every_dtype_and_schedule(schedule, dtype):
    model = MatrixChain(dsize=17, num_layers=5, seed=3)
    torch_dtype = getattr(torch, dtype)
    model = model.to(torch.float64 if torch_dtype == torch.float64 else torch.float32)
    rounded = copy.deepcopy(model).to(torch_dtype).to(next(model.parameters()).dtype)
    batches = [torch.randn(model.input_shape(4)).to(next(rounded.parameters()).dtype) for _ in range(2)]
    expected = run_plain(rounded, batches)
    budget = PhasedModel.compute_min_budget(model, schedule=schedule, dtype=dtype)
    with PhasedModel(model, schedule=schedule, dtype=dtype, budget=budget, threads=1, keep=False) as phased:
        assert ("float32 computed" in phased.arithmetic) == (torch_dtype.itemsize == 2)
        assert phased.weight_bytes == 5 * 17 * 17 * torch_dtype.itemsize
        if not SCHEDULES[schedule].holds_all_weights:
            assert phased.stream_bytes == phased.weight_bytes
            assert [len(phase.modules) for phase in phased.phases] == [1] * 5
        for output, expected_output in zip(phased.run(batches), expected, strict=True):
            check_same(output, expected_output, exact=True)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_residual_network_equals_torch_with_few_buffers(schedule):
    model = build("resnet18", num_classes=10)
    images = torch.randn(2, 3, 64, 64)
    expected = run_plain(model, [images])
    budget = PhasedModel.compute_min_budget(model, schedule=schedule)
    with PhasedModel(model, schedule=schedule, budget=budget, input_shape=images.shape, threads=1) as phased:
        assert sum(phase.flops or 0 for phase in phased.phases) > 100e6
        check_same(phased(images), expected[0], exact=schedule != "data-parallel")


def test_a_budget_for_all_weights_streams_none():
    model = MatrixChain(dsize=8, num_layers=4)
    with PhasedModel(model, budget="1MB") as phased:
        x = torch.randn(model.input_shape(2))
        check_same(phased(x), run_plain(model, [x])[0], exact=True)
        assert phased.stream_bytes == 0
        assert all(phase.resident for phase in phased.phases)
        assert {event.kind for event in phased.events} == {"compute"}


def test_a_medium_budget_keeps_some_phases_and_streams_the_others():
    model = MatrixChain(dsize=64, num_layers=8)
    names = [f"layers.{number}" for number in range(8)]
    with PhasedModel(model, budget=7 * 64 * 64 * 4, phases=names) as phased:
        x = torch.randn(model.input_shape(2))
        check_same(phased(x), run_plain(model, [x])[0], exact=True)
        assert [phase.resident for phase in phased.phases].count(True) == 4
        assert phased.working_bytes <= phased.budget


def test_phases_begin_at_the_modules_named_by_the_user():
    model = MatrixChain(dsize=8, num_layers=6)
    with PhasedModel(model, phases=["layers.2", "layers.3"]) as phased:
        assert [phase.modules for phase in phased.phases] == [
            ("layers.0", "layers.1"),
            ("layers.2",),
            ("layers.3", "layers.4", "layers.5"),
        ]


class Returns(nn.Module):
    """A network that returns a weight, a view of a weight, its input and a number."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, scale=2.0):
        part = self.first.weight[:2]
        y = self.second(self.first(x) * scale)
        return {"y": y, "all": [x, part, self.second.weight], "size": x.shape[0], "late": part * 1.0}


def test_outputs_do_not_alias_working_memory():
    model = Returns().eval()
    x = torch.randn(3, 4)
    with PhasedModel(model, budget=4 * 4096, phases=["first", "second"], keep=False) as phased, torch.no_grad():
        for scale in (2.0, 0.5):
            output, expected = phased(x, scale=scale), model(x, scale)
            phased(x + 1)  # overwrites all buffers
            assert torch.equal(output["y"], expected["y"])
            assert output["size"] == 3
            assert torch.equal(output["late"], expected["late"])
            for actual, reference in zip(output["all"], expected["all"], strict=True):
                assert torch.equal(actual, reference)


def test_a_failed_call_leaves_the_model_usable():
    model = MatrixChain(dsize=16, num_layers=5)
    x = torch.randn(model.input_shape(2))
    for schedule in SCHEDULES:
        budget = PhasedModel.compute_min_budget(model, schedule=schedule)
        with PhasedModel(model, schedule=schedule, budget=budget, threads=1) as phased:
            for _ in range(2):
                with pytest.raises(RuntimeError, match=r"cannot be multiplied|Expected size"):
                    phased(torch.randn(2, 16, 15))
                check_same(phased(x), run_plain(model, [x])[0], exact=schedule != "data-parallel")


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_a_network_in_16_bits_computes_in_16_bits(schedule, kind):
    model = MatrixChain(dsize=16, num_layers=3).to(kind)
    x = torch.randn(model.input_shape(2)).to(kind)
    with PhasedModel(model, schedule=schedule, budget="8KiB", threads=1) as phased:
        output = phased(x)
    assert output.dtype == kind
    check_same(output, run_plain(model, [x])[0], exact=schedule != "data-parallel")


@pytest.mark.parametrize("options", [{}, {"cold": True}, {"store": "host"}, {"store": "mapped"}])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_files_of_other_programs_can_be_used(tmp_path, options, kind):
    """The file has its tensors in another order, additional tensors and counters, and no page alignment."""
    model = build("resnet18", num_classes=7).to(kind).float()
    state = {name: value.to(kind) if value.is_floating_point() else value for name, value in model.state_dict().items()}
    save_file({"aaa": torch.zeros(3, dtype=torch.uint8), **state}, tmp_path / "w")
    with torch.device("meta"):
        bare = build_layers("resnet18", num_classes=7).eval()
    images = torch.randn(2, 3, 32, 32)
    with PhasedModel(bare, path=tmp_path / "w", budget="40MB", threads=1, **options) as phased:
        assert 0 < phased.stream_bytes < phased.weight_bytes
        for _ in range(2):
            check_same(phased(images), run_plain(model, [images])[0], exact=True)


def test_host_memory_is_filled_from_the_file_that_was_written(tmp_path):
    model = MatrixChain(dsize=16, num_layers=4)
    x = torch.randn(model.input_shape(2))
    with PhasedModel(model, store="host", path=tmp_path / "w", budget="8KiB", keep=False, threads=1) as phased:
        (tmp_path / "w").unlink()
        for _ in range(2):
            check_same(phased(x), run_plain(model, [x])[0], exact=True)
