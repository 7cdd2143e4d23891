"""Tests of the network benchmark: results are checked before the timing, and a wrong network is not timed."""

from __future__ import annotations

import pytest
from torch import Tensor, nn

from tessera.errors import Refused, TesseraError
from tessera.launch.worker import RunContext
from tessera.measure.samples import Sampling
from tessera.results.record import Record
from tessera.spatial.bench import network
from tessera.spatial.bench.run import run_case
from tessera.spatial.bench.time_limit import START_SECONDS, compute_time_limit
from tessera.spatial.cases import cases
from tessera.spatial.parallel_model import ParallelModel
from tessera.spatial.section.network import build_network_section

MODEL = "tests.spatial.bench.test_network:make_network"


def make_network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 3, stride=2))


def run_one(context: RunContext, **params: object) -> Record:
    axes = {"model": [MODEL], "image_size": [12], "num_spatial_parts": [1], **{k: [v] for k, v in params.items()}}
    (case,) = cases(["network"], **axes)
    return run_case(context, case, Sampling(warmup=1, iterations=3))


@pytest.mark.parametrize("backward", [False, True])
def test_a_network_is_checked_and_timed(backward: bool) -> None:
    record = run_one(RunContext(), backward=backward)
    assert record.status == "ok", record.reason
    assert record.metrics["error_output"].value <= 1e-9
    assert ("error_weight_gradient" in record.metrics) == backward
    assert record.metrics["time"].value > 0
    assert record.metrics["uncut"].value > 0
    assert [row["module"] for row in record.details["explanation"]] == ["0", "1", "2", "3"]
    section = build_network_section([record])
    assert section is not None
    assert len(section.blocks) == 2, "a table and a picture"


def test_a_wrong_result_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def gather(self: ParallelModel, output: Tensor) -> Tensor:
        return output * 1.001

    monkeypatch.setattr(network.ParallelModel, "gather", gather)
    record = run_one(RunContext())
    assert (record.status, record.launches) == ("failed", ())
    assert record.reason.startswith("output off by 0.001")


def test_an_image_that_the_network_does_not_accept_is_refused() -> None:
    with pytest.raises(Refused, match=r"expected input\[1, 5, 12, 12\] to have 3 channels.*check --in-channels"):
        run_one(RunContext(), in_channels=5)


def test_impossible_splits_and_options_are_refused() -> None:
    with pytest.raises(TesseraError, match="more parts than the image has pixels along a dim"):
        cases(["network"], image_size=[1], num_spatial_parts=[2])
    with pytest.raises(TesseraError, match="--kernel applies only to exchange and compute and validate"):
        cases(["network"], kernel=[3])
    (case,) = cases(["network"], num_spatial_parts=[2])
    assert compute_time_limit(case, Sampling(warmup=1, iterations=9)) == START_SECONDS + 600
    assert compute_time_limit(case, Sampling()) is None
