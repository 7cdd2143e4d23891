"""Tests of networks with calls that are refused: they are counted, with their share of the time by torch's profiler."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from tessera.errors import Refused
from tessera.operators.preparation import prepare_pass
from tessera.operators.sources.model import (
    cases,
    describe_difference,
    find_refused_calls,
    is_whole_model,
    make_whole_model_cases,
)
from tessera.results.metrics import make_metrics
from tessera.results.record import Record


class RecurrentNetwork(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.LSTM(96, 128, batch_first=True)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        out, _ = self.recurrent(images.reshape(images.shape[0], -1, 96))
        return out[:, -1] * (out[:, 0] > 0)


def build_network() -> nn.Module:
    return RecurrentNetwork()


def test_the_share_of_refused_calls_is_not_attributed_to_python():
    calls = cases(f"{__name__}:build_network", image_size=32)
    (whole,) = make_whole_model_cases(calls)
    records = [
        Record(
            case=whole, metrics=make_metrics({"time": 1e-3}), details=dict(prepare_pass(whole).details), environment={}
        )
    ]
    for case in calls:
        record = Record(case=case, metrics=make_metrics({"time": 1e-6}), environment={})
        try:
            prepare_pass(case)
        except Refused as error:
            record = replace(record, status="refused", reason=str(error), metrics={})
        records.append(record)
    refused = [record.case.name for record in records if record.status == "refused"]
    assert refused == ["aten.mkldnn_rnn_layer"]
    (found,) = find_refused_calls(records)
    assert found.calls == 1
    assert 0.2 < found.share < 1.0
    text = "\n".join(describe_difference(records))
    assert "aten.mkldnn_rnn_layer" in text
    assert f"they take {found.share:.1%} of the model's time" in text
    assert is_whole_model(whole)


def test_the_backward_pass_of_a_comparison_is_refused():
    compared = [
        case for case in cases(f"{__name__}:build_network", image_size=32, passes=["backward"]) if "gt" in case.name
    ]
    assert compared
    for case in compared:
        with pytest.raises(Refused, match=r"no output of .* has a gradient"):
            prepare_pass(case)
