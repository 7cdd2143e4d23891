"""Tests of predictions of halo cases from a machine's calibration, for each transport."""

from __future__ import annotations

import importlib.util
import random

import pytest

from tessera.geometry import Mesh
from tessera.machine import Link, Machine, save_host
from tessera.measure.environment import compute_host_fingerprint, describe_environment
from tessera.spatial.bench.prediction import predict_case
from tessera.spatial.cases import cases
from tessera.spatial.problem import ExchangeVolume, HaloProblem
from tessera.transport.mpi import MpiTransport
from tessera.transport.shared import SharedTransport
from tessera.transport.transport import TransportTraits

TRAITS = {"mpi": MpiTransport.traits, "shared": SharedTransport.traits, "gloo": TransportTraits(messages="gloo")}
TWO = {"num_spatial_parts": [2], "slice_method": ["vertical"], "in_channels": [4]}


@pytest.fixture
def host(tmp_path, monkeypatch) -> Machine:
    monkeypatch.setenv("TESSERA_HOME", str(tmp_path))
    figures = [random.uniform(1, 9) for _ in range(4)]
    machine = Machine(
        name="host",
        title="invented",
        worker="core",
        workers=Mesh(1, 2),
        local_memory=1 << 30,
        global_memory=1 << 31,
        flops={"float32": (figures[0] * 1e10, figures[0] * 2e10)},
        links={
            "link": Link(bandwidth=(figures[1] * 1e9,), latency=figures[2] * 1e-6),
            "copy": Link(bandwidth=(figures[3] * 1e9, figures[3] * 1.5e9)),
            "global": Link(bandwidth=(1e10, 2e10)),
        },
    )
    save_host(machine, compute_host_fingerprint(describe_environment()))
    return machine


def predict(name: str, transport: str, **axes) -> tuple[dict[str, float], HaloProblem]:
    (case,) = cases([name], **{**TWO, "image_size": [random.randrange(16, 512)], **axes})
    problem = HaloProblem.of(case.params)
    metrics = predict_case(case, problem, TRAITS[transport], describe_environment())
    return {metric: value.value for metric, value in metrics.items()}, problem


def test_messages_take_a_latency_and_their_bytes(host):
    metrics, problem = predict("exchange", "mpi")
    link = host.get_link("link")
    assert metrics["time"] == pytest.approx(link.latency + ExchangeVolume.of(problem).received / link.get_bandwidth(1))


def test_shared_memory_takes_two_latencies_and_a_copy(host):
    metrics, problem = predict("exchange", "shared")
    copied = ExchangeVolume.of(problem).received * 2 / host.get_link("copy").get_bandwidth(2)
    assert metrics["copy"] == pytest.approx(copied)
    assert metrics["time"] == pytest.approx(2 * host.get_link("link").latency + copied)


def test_gloo_is_predicted_only_if_the_calibration_used_gloo(host, monkeypatch):
    real = importlib.util.find_spec
    module = "tessera.spatial.bench.prediction.find_spec"
    monkeypatch.setattr(module, lambda name: object() if name == "mpi4py" else real(name))
    assert predict("exchange", "gloo")[0] == {}
    monkeypatch.setattr(module, lambda name: None if name == "mpi4py" else real(name))
    assert predict("exchange", "gloo")[0]["time"] > 0


def test_overlap_hides_the_exchange_behind_the_convolution(host):
    random.seed(0)
    sequential, _ = predict("compute", "mpi", overlap=["none"], image_size=[256])
    overlapped, _ = predict("compute", "mpi", overlap=["split"], image_size=[256])
    assert sequential["time"] == pytest.approx(sequential["exchange"] + sequential["convolution"])
    assert overlapped["convolution"] <= overlapped["time"] < sequential["time"]
    assert overlapped["sequential"] == pytest.approx(sequential["time"])


def test_an_uncalibrated_machine_predicts_nothing(host, tmp_path, monkeypatch):
    assert predict("exchange", "mpi", backward=[True])[0] == {}
    assert predict("compute", "mpi", overlap=["none"], dtype=["float64"])[0] == {}
    for name, value in (
        ("OMPI_COMM_WORLD_SIZE", "2"),
        ("OMPI_COMM_WORLD_RANK", "0"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "1"),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_RANK", "0")
    monkeypatch.delenv("TESSERA_WORKER", raising=False)
    assert predict("exchange", "mpi")[0] == {}, "the network between two hosts is not calibrated"
    monkeypatch.setenv("TESSERA_HOME", str(tmp_path / "uncalibrated"))
    assert predict("exchange", "shared")[0] == {}
