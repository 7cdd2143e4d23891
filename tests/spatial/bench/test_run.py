"""The benchmarks on real ranks: joined samples, figures that fit together, and what is said about choices."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tessera.errors import TesseraError
from tessera.launch import LaunchConfig, Workers
from tessera.measure.samples import Sampling
from tessera.results.record import Record
from tessera.spatial.bench.problem import Borders, Problem
from tessera.spatial.cases import OVERLAPS, cases

pytestmark = [pytest.mark.timeout(120), pytest.mark.ranks]

RUN = "tessera.spatial.bench.run:run_case"
FEW = Sampling(warmup=1, iterations=4)
TWO = {"num_spatial_parts": [2], "slice_method": ["vertical"], "image_size": [32], "in_channels": [4]}


@pytest.fixture(scope="module", params=["torchrun", "mpiexec"])
def two(request: pytest.FixtureRequest) -> Iterator[Workers]:
    with Workers(LaunchConfig(spawn=request.param, workers=2)) as workers:
        yield workers


def run(workers: Workers, name: str, sampling: Sampling = FEW, **axes: list[object]) -> Record:
    (case,) = cases([name], **{**TWO, **axes})
    found = workers.run(RUN, case, sampling)
    assert [record.launches for record in found] == [found[0].launches] * len(found), "ranks agree on the samples"
    record: Record = found[0]
    return record


@pytest.mark.parametrize("backward", [False, True])
def test_an_exchange_is_the_slowest_ranks_and_knows_its_bytes(two: Workers, backward: bool) -> None:
    record = run(two, "exchange", backward=[backward])
    (samples,) = record.launches
    assert len(samples.ranks) == 2
    assert samples.values == tuple(max(pair) for pair in zip(*samples.ranks, strict=True))
    assert (len(samples.values), len(samples.warmups)) == (4, 1)
    borders = Borders.of(Problem.of(record.case.params))
    assert borders.received == 32 * 4 * 4
    assert record.metrics["bytes"].value == borders.received
    took = record.metrics["time"].value
    assert record.metrics["bandwidth"].value == pytest.approx((1 + backward) * borders.received / took / 1e9)
    assert record.metrics["copy"].value > 0
    assert ("forward" in record.metrics) == backward
    chosen = record.conditions
    assert chosen["transport"] in ("gloo", "shared")
    assert any(note.startswith(f"layout {chosen['layout']}: takes ") for note in record.notes)


@pytest.mark.parametrize("overlap", ["none", "split", "recompute", "auto"])
def test_a_convolution_is_timed_in_parts_as_a_whole_and_uncut(two: Workers, overlap: str) -> None:
    several = Sampling(warmup=1, iterations=8)  # enough for an interval
    record = run(two, "compute", several, overlap=[overlap], out_channels=[8], layout=["contiguous"])
    metrics = {name: metric.value for name, metric in record.metrics.items()}
    assert min(metrics[name] for name in ("time", "exchange", "convolution", "uncut")) > 0
    assert metrics["efficiency"] == pytest.approx(metrics["uncut"] / metrics["time"])
    if overlap == "none":
        assert "hidden" not in metrics
    else:
        assert metrics["hidden_low"] <= metrics["hidden"] <= metrics["hidden_high"]
    assert record.conditions["layout"] == "contiguous"
    assert any(note.startswith("uncut on ") for note in record.notes)
    settled = [note.removeprefix("overlap auto: ") for note in record.notes if note.startswith("overlap auto: ")]
    assert (len(settled) == 1 and settled[0] in OVERLAPS) if overlap == "auto" else not settled


def test_backward_with_compressed_gradients(two: Workers) -> None:
    plain = run(two, "compute", overlap=["none"], backward=[True], layout=["channels_last"])
    packed = run(two, "compute", overlap=["none"], backward=[True], fp16_allreduce=[True], layout=["channels_last"])
    assert plain.case.key != packed.case.key
    assert packed.metrics["gflops"].value > 0
    assert plain.predicted == packed.predicted == {}


def test_sampling_stops_at_a_target_or_a_budget(two: Workers) -> None:
    found = run(two, "exchange", Sampling(budget=0.2, target=0.5), layout=["contiguous"]).launches[0]
    assert found.stopped_by in ("target", "budget")
    assert len(found.values) >= 3


def test_validation_on_ranks(two: Workers) -> None:
    record = run(two, "validate", out_channels=[3], kernel=[4], stride=[2])
    assert record.status == "ok", record.reason
    assert record.notes[:2] == ("Validation passed for rank: 0", "Validation passed for rank: 1")
    assert 0 < record.metrics["error_output"].value < record.metrics["tolerance"].value
    assert record.launches == ()


def test_every_part_needs_a_rank(two: Workers) -> None:
    (case,) = cases(["exchange"])
    with pytest.raises(TesseraError, match="every part of the image needs a rank: got '2 ranks'; allowed: 4"):
        two.run(RUN, case, FEW)


def test_an_uncut_image_is_measured_all_the_same() -> None:
    with Workers(LaunchConfig()) as alone:
        for name, more in (("exchange", {}), ("compute", {"out_channels": [4], "overlap": ["split"]})):
            record = run(alone, name, num_spatial_parts=[1], **more)
            assert record.metrics["bytes"].value == 0
            assert "bandwidth" not in record.metrics
            assert "hidden" not in record.metrics
