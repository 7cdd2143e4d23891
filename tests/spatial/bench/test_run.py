"""Tests of the halo benchmarks on real ranks: joined samples, consistent metrics, and notes on automatic choices."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tessera.errors import TesseraError
from tessera.launch import LaunchConfig, Workers
from tessera.launch.worker import RunContext
from tessera.measure.samples import Sampling
from tessera.results.record import Record
from tessera.spatial.cases import OVERLAPS, cases
from tessera.spatial.problem import ExchangeVolume, HaloProblem
from tessera.suites.features import get_feature

pytestmark = [pytest.mark.timeout(120), pytest.mark.ranks]

RUN = "tessera.suites.worker:measure_case"
FEW = Sampling(warmup=1, iterations=4)
TWO = {"num_spatial_parts": [2], "slice_method": ["vertical"], "image_size": [32], "in_channels": [4]}


@pytest.fixture(scope="module", params=["torchrun", "mpiexec"])
def two_ranks(request: pytest.FixtureRequest) -> Iterator[Workers]:
    with Workers(LaunchConfig(spawn=request.param, workers=2)) as workers:
        yield workers


def run_case(workers: Workers, name: str, sampling: Sampling = FEW, **axes: list[object]) -> Record:
    (case,) = cases([name], **{**TWO, **axes})
    records = workers.run(RUN, get_feature("halo"), case, sampling, RunContext())
    assert [record.launches for record in records] == [records[0].launches] * len(records), "ranks agree on the samples"
    record: Record = records[0]
    return record


@pytest.mark.parametrize("backward", [False, True])
def test_the_time_of_an_exchange_is_that_of_the_slowest_rank(two_ranks: Workers, backward: bool) -> None:
    record = run_case(two_ranks, "exchange", backward=[backward])
    (samples,) = record.launches
    assert len(samples.ranks) == 2
    assert samples.values == tuple(max(pair) for pair in zip(*samples.ranks, strict=True))
    assert (len(samples.values), len(samples.warmups)) == (4, 1)
    borders = ExchangeVolume.of(HaloProblem.of(record.case.params))
    assert borders.received == 32 * 4 * 4
    assert record.metrics["bytes"].value == borders.received
    took = record.metrics["time"].value
    assert record.metrics["bandwidth"].value == pytest.approx((1 + backward) * borders.received / took / 1e9)
    assert record.metrics["copy"].value > 0
    assert ("forward" in record.metrics) == backward
    chosen = record.chosen
    assert chosen["transport"] in ("shm", "shared")
    assert any(note.startswith(f"layout {chosen['layout']}: takes ") for note in record.notes)


def test_a_network_is_exact_on_two_ranks(two_ranks: Workers) -> None:
    model = "tests.spatial.bench.test_network:make_network"
    record = run_case(two_ranks, "network", model=[model], in_channels=[3], image_size=[12], backward=[True])
    assert record.status == "ok", record.reason
    assert record.metrics["error_weight_gradient"].value <= 1e-9
    assert record.metrics["bytes"].value > 0
    assert len(record.launches[0].ranks) == 2


@pytest.mark.parametrize("overlap", ["none", "split", "recompute", "auto"])
def test_a_convolution_is_timed_in_parts_as_a_whole_and_unsplit(two_ranks: Workers, overlap: str) -> None:
    several = Sampling(warmup=1, iterations=8)  # enough for an interval
    record = run_case(two_ranks, "compute", several, overlap=[overlap], out_channels=[8], layout=["contiguous"])
    metrics = {name: metric.value for name, metric in record.metrics.items()}
    assert min(metrics[name] for name in ("time", "exchange", "convolution", "uncut")) > 0
    assert metrics["efficiency"] == pytest.approx(metrics["uncut"] / metrics["time"])
    if overlap == "none":
        assert "hidden" not in metrics
    else:
        assert metrics["hidden_low"] <= metrics["hidden"] <= metrics["hidden_high"]
    assert record.chosen["layout"] == "contiguous"
    assert any(note.startswith("unsplit on ") for note in record.notes)
    settled = [note.removeprefix("overlap auto: ") for note in record.notes if note.startswith("overlap auto: ")]
    assert (len(settled) == 1 and settled[0] in OVERLAPS) if overlap == "auto" else not settled


@pytest.mark.parametrize(("depth", "backward"), [(1, False), (3, True), ("auto", False)])
def test_a_stack_of_convolutions_is_timed(two_ranks: Workers, depth: object, backward: bool) -> None:
    stack = {"fused_layers": [3], "halo_depth": [depth], "backward": [backward], "out_channels": [2]}
    record = run_case(two_ranks, "compute", layout=["contiguous"], **stack)
    metrics = {name: metric.value for name, metric in record.metrics.items()}
    flops = 2 * 32 * 32 * 9 * (4 * 2 + 2 * 2 * 2) * (3 if backward else 1)
    assert metrics["gflops"] == pytest.approx(flops / metrics["time"] / 1e9)
    assert ("sequential" in metrics) == (depth != 1)
    assert any(note.startswith("halo_depth auto: exchanges for ") for note in record.notes) == (depth == "auto")
    assert record.predicted == {}


def test_backward_with_compressed_gradients(two_ranks: Workers) -> None:
    plain = run_case(two_ranks, "compute", overlap=["none"], backward=[True], layout=["channels_last"])
    packed = run_case(
        two_ranks, "compute", overlap=["none"], backward=[True], fp16_allreduce=[True], layout=["channels_last"]
    )
    assert plain.case.key != packed.case.key
    assert packed.metrics["gflops"].value > 0
    assert plain.predicted == packed.predicted == {}


def test_sampling_stops_at_a_target_or_a_budget(two_ranks: Workers) -> None:
    samples = run_case(two_ranks, "exchange", Sampling(budget=0.2, target=0.5), layout=["contiguous"]).launches[0]
    assert samples.stopped_by in ("target", "budget")
    assert len(samples.values) >= 3


def test_validation_on_ranks(two_ranks: Workers) -> None:
    record = run_case(two_ranks, "validate", out_channels=[3], kernel=[4], stride=[2])
    assert record.status == "ok", record.reason
    assert [verdict["text"] for verdict in record.details["rank_verdicts"]] == [
        "Validation passed for rank: 0",
        "Validation passed for rank: 1",
    ]
    assert record.verdict == "passed"
    assert 0 < record.metrics["error_output"].value < record.metrics["tolerance"].value
    assert record.launches == ()


def test_every_part_needs_a_rank(two_ranks: Workers) -> None:
    (case,) = cases(["exchange"])
    with pytest.raises(TesseraError, match="must equal the number of image parts: got '2 ranks'; allowed: 4"):
        two_ranks.run(RUN, get_feature("halo"), case, FEW, RunContext())


def test_an_unsplit_image_is_measured() -> None:
    with Workers(LaunchConfig()) as alone:
        for name, more in (("exchange", {}), ("compute", {"out_channels": [4], "overlap": ["split"]})):
            record = run_case(alone, name, num_spatial_parts=[1], **more)
            assert record.metrics["bytes"].value == 0
            assert "bandwidth" not in record.metrics
            assert "hidden" not in record.metrics
