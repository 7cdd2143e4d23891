"""Tests of operator calls captured from a model: completeness, running without the model, and shares of the time."""

from __future__ import annotations

import json
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tessera.errors import Refused, TesseraError
from tessera.launch.worker import RunContext
from tessera.measure.samples import Sampling
from tessera.models import build, model_info
from tessera.operators.bench import run_case
from tessera.operators.sources import model
from tessera.operators.sources.arguments import from_json, to_json
from tessera.operators.sources.capture import capture_calls
from tessera.results.record import Case, Metric, Record

SPEC = f"{__name__}:"


class Seen(TorchDispatchMode):
    """A dispatch mode that records the name of every dispatched operator."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace != "prim":
            self.names.append(str(func).removesuffix(".default"))
        return func(*args, **(kwargs or {}))


class Branching(nn.Module):
    """A module that branches on the values of its input, which fake tensors do not have."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return image.exp() if image.sum() == 0 else image.sin()


class Indexing(nn.Module):
    """A module with an embedding, an integer buffer and an in-place multiplication."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 8)
        self.register_buffer("places", torch.arange(12).reshape(3, 4))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        rows = self.table(self.places).flatten(0, 1)
        return image.mean((0, 1))[:1, :8] + rows.mul_(rows.shape[0])


@pytest.fixture(scope="module")
def resnet18() -> list[Case]:
    return model.cases("resnet18", image_size=64, batch_size=2)


def test_captured_calls_match_a_real_forward_pass(resnet18):
    network, images = build("resnet18"), torch.randn(2, 3, 64, 64)
    with torch.no_grad(), Seen() as seen:
        network(images)
    counted = {name: seen.names.count(name) for name in seen.names}
    actual: dict[str, int] = {}
    for case in resnet18:
        actual[case.name] = actual.get(case.name, 0) + case.params["calls"]
    assert actual == counted


def test_every_call_runs_alone_and_flops_sum_to_the_models(resnet18):
    total = 0.0
    for case in resnet18:
        assert json.loads(json.dumps(case.params)) == case.params
        made = model.prepare_case(case)
        made.call()
        checked = case.name != "aten.empty.memory_format"
        assert made.notes[0].startswith("checked against" if checked else "not checked")
        total += made.flops * case.params["calls"]
    assert total == model_info("resnet18", image_size=64, batch_size=2).flops


def test_call_arguments_are_described_briefly(resnet18):
    assert (
        model.describe_arguments(resnet18[0]) == "2x3x64x64, 64x3x7x7, None, [2, 2], [3, 3], [1, 1], False, [0, 0], 1"
    )


def test_keys_are_unique(resnet18):
    assert len({case.key for case in resnet18}) == len(resnet18)


def test_backward_runs_for_calls_that_are_not_in_place():
    refused, ran = [], []
    for case in model.cases("resnet18", image_size=32, passes=["backward"]):
        try:
            gradients = model.prepare_case(case).call()
        except Refused as error:
            refused.append((case.name, str(error)))
        else:
            assert any(gradient is not None for gradient in gradients)
            ran.append(case.name)
    assert {name for name, _ in refused} == {"aten.relu_", "aten.empty.memory_format"}
    assert {"aten.convolution", "aten.addmm", "aten.add.Tensor"} <= set(ran)


def test_overwritten_inputs_are_restored():
    actual = {case.name: case for case in model.cases(f"{SPEC}Indexing", image_size=16)}
    made = model.prepare_case(actual["aten.mul_.Tensor"])
    first = made.call().clone()
    second = made.call().clone()
    made.before()
    assert not torch.equal(first, second)
    assert torch.equal(made.call(), first)
    assert model.prepare_case(actual["aten.embedding"]).call().shape == (3, 4, 8)


def test_model_with_data_dependent_control_flow_runs_on_zeros():
    names = [call.name for call in capture_calls(Branching(), (1, 3, 4, 4), torch.float32)]
    assert "aten.exp" in names
    assert "aten.sin" not in names


def test_equal_calls_are_one_case_with_a_count():
    twice = nn.Sequential(nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1), nn.Conv2d(4, 5, 1))
    counts = [call.calls for call in capture_calls(twice, (1, 4, 3, 3), torch.float32)]
    assert counts == [2, 1]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(1, 4), max_size=3),
    st.sampled_from(["float32", "float64", "bfloat16", "int64", "bool", "complex64"]),
    st.randoms(use_true_random=False),
)
def test_tensor_is_rebuilt_from_its_description(shape, dtype, rng):
    tensor = torch.zeros(shape, dtype=getattr(torch, dtype))
    order = list(range(len(shape)))
    rng.shuffle(order)
    tensor = tensor.permute(order)
    (back,) = from_json(json.loads(json.dumps(to_json([tensor]))), torch.Generator())
    assert (back.shape, back.dtype) == (tensor.shape, tensor.dtype)
    if not tensor.is_contiguous():
        assert back.stride() == tensor.stride()
    if tensor.is_floating_point():
        assert ((back >= 0.09) & (back <= 1)).all()


def test_other_arguments_survive_the_round_trip():
    given_ = [1, 2.5, None, True, "mean", [1, [2]], torch.float16, torch.device("cpu"), torch.channels_last, 1 + 2j]
    assert from_json(json.loads(json.dumps(to_json(given_))), torch.Generator()) == given_
    with pytest.raises(TesseraError, match="cannot be stored in a case"):
        to_json(object())


def test_a_record_runs_without_the_model_and_shares_add_up():
    chosen = [case for case in model.cases("resnet18", image_size=32) if case.name in ("aten.addmm", "aten.relu_")]
    alone = [Case(**json.loads(json.dumps({"feature": c.feature, "name": c.name, "params": c.params}))) for c in chosen]
    records = [run_case(RunContext(), case, Sampling(budget=0.02)) for case in alone]
    actual = model.compute_shares(records)
    assert {share.name for share in actual} == {"aten.addmm", "aten.relu_"}
    assert sum(share.share for share in actual) == pytest.approx(1)
    expected = sum(r.metrics["time"].value * r.case.params["calls"] for r in records if r.case.name == "aten.relu_")
    assert next(s for s in actual if s.name == "aten.relu_").seconds == pytest.approx(expected)


def test_whole_model_is_compared_with_the_sum_of_its_calls():
    calls = model.cases("resnet18", image_size=32)
    (whole,) = model.make_whole_model_cases(calls)
    chosen = [whole, *(case for case in calls if case.name == "aten.relu_")]
    records = [run_case(RunContext(), case, Sampling(budget=0.02)) for case in chosen]
    assert records[0].metrics["gflops"].value > 0
    assert {share.name for share in model.compute_shares(records)} == {"aten.relu_"}
    (line,) = model.describe_difference(records)
    added, took = (float(words.split(" ms")[0]) for words in re.split("add up to |whole model takes ", line)[1:])
    assert took == pytest.approx(records[0].metrics["time"].value * 1e3, rel=1e-3)
    assert f"{(took - added) / took:+.0%}"[0] == "+", "the activations are a part of the whole"


def test_shares_exclude_failed_cases_and_other_passes():
    def record(name: str, seconds: float, calls: int, which: str = "forward", source: str = "model") -> Record:
        params = {"source": source, "pass": which, "calls": calls}
        return Record(case=Case(feature="ops", name=name, params=params), metrics={"time": Metric(seconds, "s")})

    failed = Record(case=record("x", 1, 1).case, status="failed", reason="broke")
    others = [record("a", 9, 9, which="backward"), record("a", 9, 9, source="opinfo"), failed]
    actual = model.compute_shares([record("a", 1.0, 2), record("b", 4.0, 1), record("a", 2.0, 1), *others])
    assert [(s.name, s.calls, s.seconds, s.share) for s in actual] == [("a", 3, 4.0, 0.5), ("b", 1, 4.0, 0.5)]


def test_unknown_values_are_errors_that_list_allowed_values():
    with pytest.raises(TesseraError, match="did you mean resnet18"):
        model.cases("resnet8")
    with pytest.raises(TesseraError, match="forward pass of the model failed"):
        model.cases(f"{SPEC}Indexing", image_size=4)
    with pytest.raises(TesseraError, match="--image-size and --batch-size"):
        model.cases("resnet18", image_size=0)
    with pytest.raises(Refused, match="does not have this operator"):
        model.prepare_case(
            Case(
                feature="ops",
                name="aten.nothing_such",
                params={"pass": "forward", "dtype": "float32", "seed": 0, "arguments": [], "keywords": {}},
            )
        )
